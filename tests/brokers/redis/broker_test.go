// Package redis tests the inbox behind Redis Streams.
package redis

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/brokers/inboxredis"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/tests/brokers/brokertest"
)

// maxIdleTime is long enough for a handler on a busy machine and short enough to wait for. It runs from each delivery, whether the consumer
// is dead or only slow, so it is what other brokers call an ack deadline.
const maxIdleTime = 3 * time.Second

var streams = brokertest.Broker{
	Address: address,
	Prepare: func(t testing.TB, address, topic string) { newStream(t, address, topic) },
	Subscriber: func(address, _, group string, logger watermill.LoggerAdapter) (message.Subscriber, error) {
		return redisstream.NewSubscriber(subscriberConfig(address, group), logger)
	},
	Publisher: func(address string, logger watermill.LoggerAdapter) (message.Publisher, error) {
		return redisstream.NewPublisher(redisstream.PublisherConfig{Client: newClient(address), Marshaller: inboxredis.Marshaller{}}, logger)
	},
	PublishRaw: func(t testing.TB, address, topic, id string, payload []byte) {
		entry := map[string]any{"payload": payload}
		if id != "" {
			entry["id"] = id
		}
		addEntry(t, connect(t, address), topic, entry)
	},
	AckDeadline: maxIdleTime,
}

func TestMain(m *testing.M) { brokertest.Main(m, streams) }

func TestStreams(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, streams)
}

func address(t testing.TB) string {
	return inboxtest.Server(t, "INBOX_TEST_REDIS", "127.0.0.1:6379", func(address string) error {
		client := newClient(address)
		defer func() { _ = client.Close() }()
		return client.Ping(context.Background()).Err()
	})
}

func subscriberConfig(address, group string) redisstream.SubscriberConfig {
	return redisstream.SubscriberConfig{
		Client:          newClient(address), // the subscriber closes it
		Unmarshaller:    inboxredis.Marshaller{},
		ConsumerGroup:   group,
		NackResendSleep: 100 * time.Millisecond,
		MaxIdleTime:     maxIdleTime,
		ClaimInterval:   200 * time.Millisecond,
	}
}

func newClient(address string) *redis.Client { return redis.NewClient(&redis.Options{Addr: address}) }

func connect(t testing.TB, address string) *redis.Client {
	client := newClient(address)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newStream returns a client. The stream is deleted after the test.
func newStream(t testing.TB, address, topic string) *redis.Client {
	client := connect(t, address)
	t.Cleanup(func() { require.NoError(t, client.Del(context.Background(), topic).Err()) })
	return client
}

// addEntry is a producer that knows nothing of Watermill.
func addEntry(t testing.TB, client *redis.Client, topic string, fields map[string]any) {
	t.Helper()
	require.NoError(t, client.XAdd(context.Background(), &redis.XAddArgs{Stream: topic, Values: fields}).Err())
}
