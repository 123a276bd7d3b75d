// Package nats tests the inbox behind JetStream, through both subscribers of watermill-nats.
package nats

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmjetstream "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/brokers/inboxnats"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/tests/brokers/brokertest"
)

// ackWait is long enough for a handler on a busy machine and short enough to wait for.
const ackWait = 2 * time.Second

// nakDelay keeps a message that is always nacked from coming some thousand times a second.
const nakDelay = 100 * time.Millisecond

var pkgNATS = brokertest.Broker{
	Name:        "pkg/nats",
	Address:     address,
	Prepare:     makeStream,
	Subscriber:  pkgNATSSubscriber,
	Publisher:   pkgNATSPublisher,
	PublishRaw:  publishRaw,
	AckDeadline: ackWait,
}

var pkgJetStream = brokertest.Broker{
	Name:       "pkg/jetstream",
	Address:    address,
	Prepare:    makeStream,
	Subscriber: pkgJetStreamSubscriber,
	Publisher: func(address string, logger watermill.LoggerAdapter) (message.Publisher, error) {
		return wmjetstream.NewPublisher(wmjetstream.PublisherConfig{URL: address, Logger: logger})
	},
	PublishRaw:  publishRaw,
	AckDeadline: ackWait,
}

func TestMain(m *testing.M) { brokertest.Main(m, pkgNATS, pkgJetStream) }

func TestPkgNATS(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, pkgNATS)
}

func TestPkgJetStream(t *testing.T) {
	t.Parallel()
	brokertest.Run(t, pkgJetStream)
}

func address(t testing.TB) string {
	return inboxtest.Server(t, "INBOX_TEST_NATS", nats.DefaultURL, func(address string) error {
		connection, err := nats.Connect(address)
		if err != nil {
			return err
		}
		defer connection.Close()
		js, err := jetstream.New(connection)
		if err != nil {
			return err
		}
		_, err = js.AccountInfo(context.Background())
		return err
	})
}

func connect(t testing.TB, address string) (*nats.Conn, jetstream.JetStream) {
	connection, err := nats.Connect(address)
	require.NoError(t, err)
	t.Cleanup(connection.Close)
	js, err := jetstream.New(connection)
	require.NoError(t, err)
	return connection, js
}

func makeStream(t testing.TB, address, topic string) {
	_, js := connect(t, address)
	_, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: topic, Subjects: []string{topic}, Storage: jetstream.MemoryStorage})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, js.DeleteStream(context.Background(), topic)) })
}

// publishRaw is a producer that knows nothing of Watermill.
func publishRaw(t testing.TB, address, topic, id string, payload []byte) {
	_, js := connect(t, address)
	var options []jetstream.PublishOpt
	if id != "" {
		options = append(options, jetstream.WithMsgID(id))
	}
	_, err := js.Publish(context.Background(), topic, payload, options...)
	require.NoError(t, err)
}

func pkgNATSPublisher(address string, logger watermill.LoggerAdapter) (message.Publisher, error) {
	return wmnats.NewPublisher(wmnats.PublisherConfig{URL: address, Marshaler: inboxnats.Marshaler{}}, logger)
}

// pkgNATSSubscriber is a member of a queue group on a push consumer.
func pkgNATSSubscriber(address, topic, group string, logger watermill.LoggerAdapter) (message.Subscriber, error) {
	connection, err := nats.Connect(address)
	if err != nil {
		return nil, err
	}
	js, err := connection.JetStream()
	if err != nil {
		return nil, err
	}
	// It exists before the subscription, so the subscription does not delete it.
	if _, err := js.AddConsumer(topic, &nats.ConsumerConfig{
		Durable: group, DeliverGroup: group, DeliverSubject: "deliver." + topic + "." + group, AckPolicy: nats.AckExplicitPolicy, AckWait: ackWait,
	}); err != nil {
		return nil, fmt.Errorf("add consumer: %w", err)
	}
	return wmnats.NewSubscriberWithNatsConn(connection, wmnats.SubscriberSubscriptionConfig{
		Unmarshaler:      inboxnats.Marshaler{},
		QueueGroupPrefix: group,
		AckWaitTimeout:   ackWait,
		NakDelay:         wmnats.NewStaticDelay(nakDelay),
		JetStream:        wmnats.JetStreamConfig{DurablePrefix: group, SubscribeOptions: []nats.SubOpt{nats.ManualAck()}},
	}, logger)
}

// pkgJetStreamSubscriber pulls from a consumer that others pull from, too.
func pkgJetStreamSubscriber(address, topic, group string, logger watermill.LoggerAdapter) (message.Subscriber, error) {
	connection, err := nats.Connect(address)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(connection)
	if err != nil {
		return nil, err
	}
	if _, err := js.CreateOrUpdateConsumer(context.Background(), topic, jetstream.ConsumerConfig{
		Durable: group, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
	}); err != nil {
		return nil, fmt.Errorf("create consumer: %w", err)
	}
	return wmjetstream.NewSubscriber(wmjetstream.SubscriberConfig{
		Conn:           connection,
		Logger:         logger,
		Unmarshaler:    inboxnats.JetStream{},
		AckWaitTimeout: ackWait,
		NakDelay:       wmjetstream.NewStaticDelay(nakDelay),
		ResourceInitializer: wmjetstream.ExistingConsumer(func(string, string) jetstream.ConsumerConfig {
			return jetstream.ConsumerConfig{Name: group}
		}, ""),
	})
}
