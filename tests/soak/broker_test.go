package soak

import (
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	stdamqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

func pingRabbitMQ(address string) error {
	connection, err := stdamqp.Dial(address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// broker is the test's side of RabbitMQ, the one component that nothing happens to.
type broker struct {
	config     consumerConfig
	channel    *stdamqp.Channel
	publishers []*amqp.Publisher
}

const publisherCount = 3 // a publisher waits for each confirmation

// newBroker makes the queues before anything is published: RabbitMQ confirms, and drops, what has no queue.
func newBroker(t *testing.T, config consumerConfig) *broker {
	t.Helper()
	b := &broker{config: config}
	connection, err := stdamqp.Dial(config.Broker)
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	b.channel, err = connection.Channel()
	require.NoError(t, err)

	subscriber, err := amqp.NewSubscriber(config.amqp(), watermill.NopLogger{})
	require.NoError(t, err)
	defer subscriber.Close()
	for _, queue := range []string{config.Orders, config.Poison} {
		t.Cleanup(func() {
			_, queueErr := b.channel.QueueDelete(queue, false, false, false)
			require.NoError(t, queueErr)
			require.NoError(t, b.channel.ExchangeDelete(queue, false, false))
		})
		require.NoError(t, subscriber.SubscribeInitialize(queue))
	}
	for range publisherCount {
		publisher, err := amqp.NewPublisher(config.amqp(), watermill.NopLogger{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = publisher.Close() })
		b.publishers = append(b.publishers, publisher)
	}
	return b
}

// publish returns when RabbitMQ has confirmed all messages.
func (b *broker) publish(msgs []*message.Message) error {
	errs := make([]error, len(b.publishers))
	var wait sync.WaitGroup
	for i, publisher := range b.publishers {
		wait.Go(func() {
			for n := i; n < len(msgs) && errs[i] == nil; n += len(b.publishers) {
				errs[i] = publisher.Publish(b.config.Orders, msgs[n])
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// ready does not count messages that are delivered and not acked.
func (b *broker) ready(queue string) (int, error) {
	state, err := b.channel.QueueDeclarePassive(queue, true, false, false, false, nil)
	return state.Messages, err
}

// poisoned tells why one of the poisoned messages is one.
func (b *broker) poisoned() string {
	msg, found, err := b.channel.Get(b.config.Poison, true)
	if err != nil || !found {
		return "none"
	}
	reason, _ := msg.Headers[middleware.ReasonForPoisonedKey].(string)
	return reason
}
