package inventory

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"

	"github.com/watermill-inbox/inbox/examples/internal/demo"
)

// DefaultBroker is where RabbitMQ answers unless INBOX_TEST_RABBITMQ says otherwise.
const DefaultBroker = "amqp://guest:guest@127.0.0.1:5672/"

// PingBroker tells whether RabbitMQ answers.
func PingBroker(address string) error {
	connection, err := amqp.NewConnection(amqp.ConnectionConfig{AmqpURI: address}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	return connection.Close()
}

// BrokerConfig is that of a service.
func BrokerConfig(service string) amqp.Config {
	config := amqp.NewDurablePubSubConfig(
		demo.Env("INBOX_TEST_RABBITMQ", DefaultBroker),
		amqp.GenerateQueueNameTopicNameWithSuffix(service), // one queue for all instances of a service
	)
	// Without it Publish returns before RabbitMQ has the message, and the relay would delete events that never arrived.
	config.Publish.ConfirmDelivery = true
	config.Publish.ChannelPoolSize = 2 // otherwise every Publish opens a channel
	return config
}

// NewSubscriber subscribes a service. The queues of all its topics are made at once: RabbitMQ throws away, and confirms, what is
// published to an exchange without a queue.
func NewSubscriber(service string, logger watermill.LoggerAdapter, topics ...string) (*amqp.Subscriber, error) {
	subscriber, err := amqp.NewSubscriber(BrokerConfig(service), logger)
	if err != nil {
		return nil, err
	}
	for _, topic := range topics {
		if err := subscriber.SubscribeInitialize(topic); err != nil {
			return nil, fmt.Errorf("make the queue of %s for %s: %w", topic, service, err)
		}
	}
	return subscriber, nil
}
