package deferred_test

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

// consumer is the one of all nodes.
const consumer = "orders"

// nodeConfig is what the nodes of a test have in common.
type nodeConfig struct {
	Lease       time.Duration
	MaxAttempts int
	MaxInFlight int
	Poll        time.Duration
	Topics      []string
}

// node is one process of the service, or of the test: a Receiver, and a Router with a Subscriber and an Inbox.
type node struct {
	receiver   *deferred.Receiver
	subscriber *deferred.Subscriber
	router     *message.Router
	stopped    chan error
}

// effect is what a handler does with its transaction besides the row that every handler writes.
type effect func(msg *message.Message) error

func newNode(pool wsql.Beginner, schema inbox.Schema, config nodeConfig, handle effect, logger watermill.LoggerAdapter) (*node, error) {
	n := &node{stopped: make(chan error, 1)}
	wakeup := &deferred.Wakeup{}
	var err error
	n.receiver, err = deferred.NewReceiver(pool, deferred.ReceiverConfig{
		Schema: schema, Consumer: consumer, Wakeup: wakeup, Timeout: 10 * time.Second,
		OrderingKey: func(msg *message.Message) string { return msg.Metadata.Get("key") },
	}, logger)
	if err != nil {
		return nil, err
	}
	n.subscriber, err = deferred.NewSubscriber(pool, deferred.SubscriberConfig{
		Schema: schema, Consumer: consumer, Wakeup: wakeup, MaxInFlight: config.MaxInFlight, Lease: config.Lease, Timeout: config.Lease / 3,
		MaxAttempts: config.MaxAttempts, InitialBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, PollInterval: config.Poll,
	}, logger)
	if err != nil {
		return nil, err
	}
	box, err := inbox.New(pool, inbox.Config{Schema: schema, Consumer: consumer, ShareConsumer: true}, logger)
	if err != nil {
		return nil, err
	}
	n.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	n.router.AddMiddleware(box.Middleware)
	for _, topic := range config.Topics {
		n.router.AddConsumerHandler(topic, topic, n.subscriber, inbox.ConsumeTx(func(msg *message.Message, tx wsql.Tx) error {
			attempt, _ := deferred.Attempt(msg)
			// The ids of these tests need no quotes. Nothing is unique in the table: the inbox alone prevents a second row.
			row := fmt.Sprintf("INSERT INTO effects (message_id, attempt) VALUES ('%s', %d)", msg.UUID, attempt)
			if _, err := tx.ExecContext(msg.Context(), row); err != nil {
				return err
			}
			return handle(msg)
		}))
	}
	return n, nil
}

// start returns when the Router runs.
func (n *node) start() error {
	go func() { n.stopped <- n.router.Run(context.Background()) }()
	select {
	case <-n.router.Running():
		return nil
	case err := <-n.stopped:
		return fmt.Errorf("the Router ended: %w", err)
	}
}

// stop is a clean shutdown.
func (n *node) stop() error {
	if err := n.router.Close(); err != nil {
		return err
	}
	return <-n.stopped
}
