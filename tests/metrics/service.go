// Package metrics is a service whose inbox is watched, for tests of what it exposes and for the picture of the dashboard.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/metrics"
)

// The consumers of a Service: the first one is direct, the other deferred.
const (
	Direct   = "reserve-stock"
	Deferred = "send-mail"
	Topic    = "orders"
)

// Service has a direct and a deferred consumer on one database.
type Service struct {
	Registry *prometheus.Registry
	Observer *metrics.Observer
	Store    *deferred.Store

	backlog    *metrics.Backlog
	direct     message.HandlerFunc
	deferred   message.HandlerFunc
	receiver   *deferred.Receiver
	subscriber *deferred.Subscriber
}

// Handler is what both consumers do.
type Handler func(msg *message.Message) error

// ErrOutOfStock is an error of a Handler.
var ErrOutOfStock = errors.New("out of stock")

// New makes a Service, whose tables it creates. Nothing of it runs before Run.
func New(pool wsql.Beginner, schema inbox.Schema, handler Handler, config metrics.BacklogConfig) (*Service, error) {
	s := &Service{Registry: prometheus.NewRegistry()}
	var err error
	if s.Observer, err = metrics.NewObserver(s.Registry, metrics.ObserverConfig{Consumers: []string{Direct, Deferred}, Horizon: 2 * time.Minute}); err != nil {
		return nil, err
	}
	if s.receiver, err = deferred.NewReceiver(pool, deferred.ReceiverConfig{Schema: schema, Consumer: Deferred, AutoInitializeSchema: true}, nil); err != nil {
		return nil, err
	}
	if s.subscriber, err = deferred.NewSubscriber(pool, deferred.SubscriberConfig{
		Schema: schema, Consumer: Deferred, MaxInFlight: 4, MaxAttempts: 3, Lease: 6 * time.Second, InitialBackoff: 500 * time.Millisecond, Observer: s.Observer,
	}, nil); err != nil {
		return nil, err
	}
	if s.Store, err = deferred.NewStore(pool, schema, deferred.Pending, nil); err != nil {
		return nil, err
	}
	if s.backlog, err = metrics.NewBacklog(s.Store, config); err != nil {
		return nil, err
	}
	if err := s.Registry.Register(s.backlog); err != nil {
		return nil, err
	}
	s.direct, err = s.consumer(pool, inbox.Config{Schema: schema, Consumer: Direct}, handler)
	if err != nil {
		return nil, err
	}
	s.deferred, err = s.consumer(pool, inbox.Config{Schema: schema, Consumer: Deferred}, handler)
	return s, err
}

func (s *Service) consumer(pool wsql.Beginner, config inbox.Config, handler Handler) (message.HandlerFunc, error) {
	config.Observer, config.AutoInitializeSchema = s.Observer, true
	box, err := inbox.New(pool, config, nil)
	if err != nil {
		return nil, err
	}
	return box.Middleware(func(msg *message.Message) ([]*message.Message, error) { return nil, handler(msg) }), nil
}

// Deliver hands a message to the direct consumer, as a broker does.
func (s *Service) Deliver(id, payload string) error {
	_, err := s.direct(message.NewMessage(id, []byte(payload)))
	return err
}

// Receive stores messages for the deferred consumer.
func (s *Service) Receive(ids ...string) error {
	msgs := make([]*message.Message, len(ids))
	for n, id := range ids {
		msgs[n] = message.NewMessage(id, []byte("{}"))
	}
	return s.receiver.Publish(Topic, msgs...)
}

// Run runs the deferred consumer until the end of ctx.
func (s *Service) Run(ctx context.Context) error {
	messages, err := s.subscriber.Subscribe(ctx, Topic)
	if err != nil {
		return err
	}
	for range 4 {
		go func() {
			for msg := range messages {
				if _, err := s.deferred(msg); err != nil {
					msg.Nack()
				} else {
					msg.Ack()
				}
			}
		}()
	}
	<-ctx.Done()
	return nil
}

// Close ends what is under way.
func (s *Service) Close() error {
	if err := errors.Join(s.subscriber.Close(), s.backlog.Close()); err != nil {
		return fmt.Errorf("close service: %w", err)
	}
	return nil
}
