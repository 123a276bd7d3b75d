// Package rabbitmq has the wiring of RabbitMQ for brokertest.
package rabbitmq

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/brokers/inboxamqp"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/tests/brokers/brokertest"
)

// plain is a producer that sets message_id and nothing else. typed also has headers that are not strings.
var (
	plain amqp091.Table
	typed = amqp091.Table{"priority": int32(7), "express": true, "weight": 0.5, "lines": []any{amqp091.Table{"article": int64(1)}}}

	classic = broker("classic", amqp091.QueueTypeClassic, plain)
	quorum  = broker("quorum", amqp091.QueueTypeQuorum, typed)
)

func TestMain(m *testing.M) { brokertest.Main(m, classic, quorum) }

func TestClassicQueue(t *testing.T) { brokertest.Run(t, classic) }

// TestQuorumQueue: such queues add the header x-delivery-count, which is no string, to each redelivery.
func TestQuorumQueue(t *testing.T) { brokertest.Run(t, quorum) }

func broker(name, queueType string, headers amqp091.Table) brokertest.Broker {
	return brokertest.Broker{
		Name:    name,
		Address: address,
		Prepare: func(t testing.TB, address, topic string) {
			makeQueue(t, connect(t, address), topic, amqp091.Table{amqp091.QueueTypeArg: queueType})
		},
		Subscriber: func(address, _, _ string, logger watermill.LoggerAdapter) (message.Subscriber, error) {
			return amqp.NewSubscriber(config(address, queueType), logger)
		},
		Publisher: func(address string, logger watermill.LoggerAdapter) (message.Publisher, error) {
			return amqp.NewPublisher(config(address, queueType), logger)
		},
		PublishRaw: func(t testing.TB, address, topic, id string, payload []byte) {
			publish(t, connect(t, address), topic, amqp091.Publishing{MessageId: id, Headers: headers, Body: payload})
		},
		NoAckDeadline: "RabbitMQ looks only once a minute for deliveries that are older than its consumer_timeout, 30 minutes by default",
	}
}

func config(address, queueType string) amqp.Config {
	config := amqp.NewDurableQueueConfig(address) // one queue, and one group of consumers, for each topic
	config.Marshaler = inboxamqp.Marshaler{}
	config.Queue.Arguments = amqp091.Table{amqp091.QueueTypeArg: queueType}
	config.Publish.ConfirmDelivery = true
	config.Consume.Qos.PrefetchCount = 10
	return config
}

func address(t testing.TB) string {
	return inboxtest.Server(t, "INBOX_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672/", func(address string) error {
		connection, err := amqp091.Dial(address)
		if err != nil {
			return err
		}
		return connection.Close()
	})
}

// connect is for the raw client.
func connect(t testing.TB, address string) *amqp091.Channel {
	t.Helper()
	connection, err := amqp091.Dial(address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	channel, err := connection.Channel()
	require.NoError(t, err)
	require.NoError(t, channel.Confirm(false))
	return channel
}

func makeQueue(t testing.TB, channel *amqp091.Channel, name string, arguments amqp091.Table) {
	t.Helper()
	_, err := channel.QueueDeclare(name, true, false, false, false, arguments)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := channel.QueueDelete(name, false, false, false)
		require.NoError(t, err)
	})
}

// publish returns when the queue has the message.
func publish(t testing.TB, channel *amqp091.Channel, queue string, publishing amqp091.Publishing) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	confirmation, err := channel.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false, publishing)
	require.NoError(t, err)
	stored, err := confirmation.WaitContext(ctx)
	require.NoError(t, err)
	require.True(t, stored)
}
