// Package kafka tests the inbox behind Kafka: the broker of franz-go in this process, and one at INBOX_TEST_KAFKA where that is set.
package kafka

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/watermill-inbox/inbox/brokers/inboxkafka"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/tests/brokers/brokertest"
)

const (
	// sessionTimeout is how long a consumer seems to live that was killed. It is the shortest that brokers allow by default.
	sessionTimeout = 6 * time.Second

	// rebalanceTimeout is how long a consumer may take to let go of its partitions. A handler that takes longer loses its message to
	// another consumer, which makes it an ack deadline, but one that runs only when the members of the group change.
	rebalanceTimeout = 3 * time.Second

	partitions = 3
)

var kafka = brokertest.Broker{
	Prepare: func(t testing.TB, address, topic string) { makeTopic(t, address, topic, partitions) },
	Subscriber: func(address, _, group string, logger watermill.LoggerAdapter) (message.Subscriber, error) {
		return wmkafka.NewSubscriber(subscriberConfig(address, group), logger)
	},
	Publisher: func(address string, logger watermill.LoggerAdapter) (message.Publisher, error) {
		return wmkafka.NewPublisher(wmkafka.PublisherConfig{Brokers: []string{address}, Marshaler: inboxkafka.Marshaler{}}, logger)
	},
	PublishRaw: func(t testing.TB, address, topic, id string, payload []byte) {
		record := &kgo.Record{Topic: topic, Value: payload}
		if id != "" {
			record.Headers = []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}
		}
		produce(t, connect(t, address), record)
	},
	AckDeadline: rebalanceTimeout,
}

func TestMain(m *testing.M) { brokertest.Main(m, kafka) }

func TestKafka(t *testing.T) {
	onEachBroker(t, func(t *testing.T, address string) {
		t.Parallel()
		broker := kafka
		broker.Address = func(testing.TB) string { return address }
		brokertest.Run(t, broker)
	})
}

const variable = "INBOX_TEST_KAFKA"

// onEachBroker plays on franz-go's broker always, and on a real one only where somebody named it: nothing skips, and one that is named and
// does not answer fails.
func onEachBroker(t *testing.T, play func(t *testing.T, address string)) {
	t.Parallel()
	t.Run("kfake", func(t *testing.T) {
		address, err := startFake()
		require.NoError(t, err)
		play(t, address)
	})
	address := os.Getenv(variable)
	if address == "" || address == inboxtest.Unavailable || testing.Short() {
		return
	}
	t.Run("real", func(t *testing.T) {
		require.NoError(t, ping(address), "%s=%s", variable, address)
		play(t, address)
	})
}

func ping(address string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(address))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return client.Ping(ctx)
}

// startFake is one broker for all tests. It ends with the process.
var startFake = sync.OnceValues(func() (string, error) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return "", err
	}
	return cluster.ListenAddrs()[0], nil
})

func subscriberConfig(address, group string) wmkafka.SubscriberConfig {
	config := wmkafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Group.Session.Timeout = sessionTimeout
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.Rebalance.Timeout = rebalanceTimeout
	return wmkafka.SubscriberConfig{
		Brokers:               []string{address},
		Unmarshaler:           inboxkafka.Marshaler{},
		OverwriteSaramaConfig: config,
		ConsumerGroup:         group,
	}
}

func connect(t testing.TB, address string, options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(address))...)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// produce is a producer that knows nothing of Watermill.
func produce(t testing.TB, client *kgo.Client, records ...*kgo.Record) {
	t.Helper()
	require.NoError(t, client.ProduceSync(context.Background(), records...).FirstErr())
}

func makeTopic(t testing.TB, address, topic string, partitions int32) {
	t.Helper()
	admin, err := sarama.NewClusterAdmin([]string{address}, wmkafka.DefaultSaramaSubscriberConfig())
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = admin.DeleteTopic(topic)
		_ = admin.Close()
	})
	require.NoError(t, admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false))
}
