package deferred

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Receiver stores messages to be processed later. It is a message.Publisher: behind message.PassthroughHandler in a Router it takes over
// the responsibility for a message from the broker, because the Router acks only when Publish has returned and Publish returns
// only when the message is durable.
//
// A message that is pending or processed already is not stored again. It is safe for concurrent use.
type Receiver struct {
	config ReceiverConfig
	queue  *table
	closed atomic.Bool
}

var _ message.Publisher = (*Receiver)(nil)

// NewReceiver makes a Receiver on the database that the Subscriber uses. The database must be a pool. A nil logger logs nothing.
func NewReceiver(db wsql.Beginner, config ReceiverConfig, logger watermill.LoggerAdapter) (*Receiver, error) {
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("deferred: invalid ReceiverConfig: %w", err)
	}
	queue, err := newTable(db, config.Schema, Pending, config.Timeout, logger)
	if err != nil {
		return nil, fmt.Errorf("deferred: new receiver: %w", err)
	}
	r := &Receiver{config: config, queue: queue}
	if config.AutoInitializeSchema {
		if err := r.InitializeSchema(context.Background()); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// InitializeSchema creates the tables of pending messages and of identities where they are missing, and verifies the first. It is safe to call
// again and by many instances at once.
func (r *Receiver) InitializeSchema(ctx context.Context) error {
	return r.queue.initialize(ctx)
}

// Publish stores messages of a topic and returns nil when all of them are durable. Otherwise the error is a *ReceiveError that lists those that are
// not; the others are. It waits for the database even if the context of the messages ends, but not longer than Timeout allows.
func (r *Receiver) Publish(topic string, messages ...*message.Message) error {
	if len(messages) == 0 {
		return nil
	}
	_, err := r.Receive(context.WithoutCancel(messages[0].Context()), topic, messages...)
	return err
}

// String is the name by which an Inbox knows, and refuses, a handler that forwards to a Receiver. A type that embeds the Receiver has it, too.
func (r *Receiver) String() string { return "deferred.Receiver" }

// Close makes further calls of Publish and Receive fail. It does not close the database.
func (r *Receiver) Close() error {
	r.closed.Store(true)
	return nil
}
