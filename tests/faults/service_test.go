package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

const (
	consumer = "orders"
	incoming = "incoming"
)

// limits are the times of a service. Their zero values are long enough never to end.
type limits struct {
	Tx, Wait, Commit, Resolve time.Duration
}

func (l limits) or(fallback limits) limits {
	for _, pair := range []struct{ value, fallback *time.Duration }{
		{&l.Tx, &fallback.Tx}, {&l.Wait, &fallback.Wait}, {&l.Commit, &fallback.Commit}, {&l.Resolve, &fallback.Resolve},
	} {
		if *pair.value == 0 {
			*pair.value = *pair.fallback
		}
	}
	return l
}

var generous = limits{Tx: 15 * time.Second, Wait: 10 * time.Second, Commit: 5 * time.Second, Resolve: 10 * time.Second}

// service is one process of the consumer: a Router with an inbox around a handler of two statements and one produced message.
type service struct {
	target target
	pool   pool
	inbox  *inbox.Inbox
	router *message.Router
	broker *broker
	calls  atomic.Int64

	onCall func(id string)
	inside func(Point) // called at the points of the user's code

	mu     sync.Mutex
	leaked []context.Context // of all runs of the handler
}

func newService(target target, dsn string, hook Hook, times limits, onCall func(id string), inside func(Point)) (*service, error) {
	times = times.or(generous)
	s := &service{target: target, onCall: onCall, inside: inside, broker: &broker{msgs: make(chan *message.Message)}}
	var err error
	if s.pool, err = target.open(dsn, hook); err != nil {
		return nil, err
	}
	s.inbox, err = inbox.New(s.pool.db, inbox.Config{
		Schema:           target.schema,
		Consumer:         consumer,
		Outbox:           inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: target.outbox}, watermill.NopLogger{}),
		OutboxDecorators: []message.PublisherDecorator{s.decorate},
		TxTimeout:        times.Tx,
		WaitTimeout:      times.Wait,
		CommitTimeout:    times.Commit,
		ResolveTimeout:   times.Resolve,
	}, nil)
	if err != nil {
		return nil, err
	}
	if s.router, err = message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}); err != nil {
		return nil, err
	}
	s.router.AddMiddleware(tellCause, s.inbox.Middleware)
	s.router.AddHandler("handler", incoming, s.broker, outgoing, s.inbox.Publisher(), inbox.HandleTx(s.handle))
	go func() { _ = s.router.Run(context.Background()) }()
	<-s.router.Running()
	return s, nil
}

// close ends the service as a shutdown does. A pool waits for connections that are in use: a test that found one says so and must not hang.
func (s *service) close() {
	_ = s.router.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		s.pool.close()
	}()
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
	}
}

// handle writes in text without parameters, then with one, so that both protocols for statements are used.
func (s *service) handle(msg *message.Message, tx wsql.Tx) ([]*message.Message, error) {
	s.calls.Add(1)
	s.onCall(msg.UUID)
	s.mu.Lock()
	s.leaked = append(s.leaked, msg.Context())
	s.mu.Unlock()

	first := func() error {
		_, err := tx.ExecContext(msg.Context(), fmt.Sprintf("INSERT INTO biz (id, part) VALUES ('%s', 1) %s", msg.UUID, Mark(1)))
		return err
	}
	second := func() error {
		_, err := tx.ExecContext(msg.Context(), s.target.effect, msg.UUID)
		return err
	}
	for n, effect := range []func() error{first, second} {
		if err := s.around(Effect(n+1), effect); err != nil {
			return nil, err
		}
	}
	return []*message.Message{message.NewMessage(msg.UUID, []byte(`{}`))}, nil
}

// leaks tells whether a context that a handler had leads to a transaction now.
func (s *service) leaks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.leaked, func(ctx context.Context) bool {
		_, found := inbox.TxFromContext(ctx)
		return found
	})
}

func (s *service) around(step Step, run func() error) error {
	s.inside(Point{step, Before})
	if err := run(); err != nil {
		return err
	}
	s.inside(Point{step, After})
	return nil
}

// decorate puts code of the user around the outbox.
func (s *service) decorate(publisher message.Publisher) (message.Publisher, error) {
	return decorated{publisher, s}, nil
}

type decorated struct {
	message.Publisher
	service *service
}

func (d decorated) Publish(topic string, msgs ...*message.Message) error {
	return d.service.around(Outbox, func() error { return d.Publisher.Publish(topic, msgs...) })
}

// result is how a delivery ended.
type result struct {
	acked bool
	err   error // also the panic's
}

func (r result) String() string {
	if r.acked {
		return "ack"
	}
	return "nack"
}

type causeKey struct{}

// tellCause tells the broker why the Router is about to nack.
func tellCause(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		cause := msg.Context().Value(causeKey{}).(chan error)
		defer func() {
			if panicked := recover(); panicked != nil {
				cause <- fmt.Errorf("panic: %v", panicked)
				panic(panicked)
			}
			cause <- err
		}()
		return h(msg)
	}
}

// deliver hands a message to the Router and waits for its ack or nack.
func (s *service) deliver(ctx context.Context, id string) result {
	cause := make(chan error, 1)
	msg := message.NewMessage(id, []byte(`{"of":"`+id+`"}`))
	msg.SetContext(context.WithValue(ctx, causeKey{}, cause))
	s.broker.msgs <- msg
	select {
	case <-msg.Acked():
		return result{acked: true, err: <-cause}
	case <-msg.Nacked():
		return result{err: <-cause}
	case <-time.After(undecided):
		return result{err: errUndecided}
	}
}

// undecided is beyond every bound that a delivery has.
const undecided = time.Minute

var errUndecided = fmt.Errorf("neither ack nor nack for %s", undecided)

// broker is a Subscriber that delivers what it is told to and repeats nothing.
type broker struct {
	msgs chan *message.Message
	once sync.Once
}

func (b *broker) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return b.msgs, nil
}

func (b *broker) Close() error {
	b.once.Do(func() { close(b.msgs) })
	return nil
}
