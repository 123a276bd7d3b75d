package deferred

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// Subscriber hands out the messages that a Receiver stored. It is a message.Subscriber: in a Router, with Inbox.Middleware on the processing
// handler, a message's effect, its identity and the end of its row are committed together. Without that middleware it delivers at least once.
//
// Any number of Subscribers, in any number of processes, may serve the same consumer and topic; each message is with one of them at a time. It is safe
// for concurrent use.
type Subscriber struct {
	config SubscriberConfig
	db     wsql.Beginner
	queue  *table
	logger watermill.LoggerAdapter

	ctx    context.Context // ends at Close
	cancel context.CancelFunc

	mu     sync.Mutex
	closed bool
	active sync.WaitGroup // subscriptions
	keeper *keeper        // nil: there are no subscriptions
}

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// NewSubscriber makes a Subscriber. The database must be a pool, except on SQLite with room for at least two connections, because a lease must be renewed
// while handlers use the others. A nil logger logs nothing.
func NewSubscriber(db wsql.Beginner, config SubscriberConfig, logger watermill.LoggerAdapter) (*Subscriber, error) {
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("deferred: invalid SubscriberConfig: %w", err)
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	queue, err := newTable(db, config.Schema, config.Queue, config.Timeout, logger)
	if err != nil {
		return nil, fmt.Errorf("deferred: new subscriber: %w", err)
	}
	if size := sqltx.PoolSize(db); size == 1 && !queue.OneWriter() {
		return nil, errors.New("deferred: new subscriber: the pool has one connection: a second is needed to renew leases while a handler uses the first")
	}
	s := &Subscriber{config: config, db: db, queue: queue, logger: logger}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if config.AutoInitializeSchema {
		if err := s.InitializeSchema(context.Background()); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// InitializeSchema creates the tables where they are missing, and verifies that of the queue. It is safe to call again and by many
// instances at once.
func (s *Subscriber) InitializeSchema(ctx context.Context) error {
	return s.queue.initialize(ctx)
}

// SubscribeInitialize is InitializeSchema. The table serves all topics.
func (s *Subscriber) SubscribeInitialize(string) error {
	return s.InitializeSchema(context.Background())
}

// Subscribe hands out the messages of a topic, up to MaxInFlight at a time, until ctx ends or the Subscriber is closed; then the channel is closed as soon
// as all messages that were handed out are acked or nacked, or CloseTimeout has passed. From then on the contexts of messages have ended.
//
// A message's context also ends when its lease is lost, for example because the database could not be reached for longer than the lease: another worker
// may then have the message.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if topic == "" || len(topic) > MaxTopicLength {
		return nil, fmt.Errorf("deferred: subscribe: topic %.300q has %d bytes, not 1 to %d", topic, len(topic), MaxTopicLength)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.active.Add(1)
	sub := newSubscription(ctx, s, topic)
	s.join(sub)
	go func() {
		defer s.active.Done()
		defer s.leave(sub)
		sub.run()
	}()
	return sub.output, nil
}

// Close ends all subscriptions and waits for them, at most about CloseTimeout. Messages that were not handed out are given back at once. Messages that
// handlers still hold keep their leases until they are acked, nacked or CloseTimeout has passed. A nack after Close counts as no attempt.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.active.Wait()
	return nil
}
