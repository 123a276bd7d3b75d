package tests

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// sqlServiceConfig is what a service finds in its environment if it runs in a process of its own.
type sqlServiceConfig struct {
	Broker, BrokerDSN string // a key of sqlBrokers
	Engine, DSN       string // of the inbox, a key of sqlEngines; with the broker's DSN broker and inbox have one pool
	Topic             string // also the name of the consumer
	PublishTopic      string // of the handler; empty: the outbox's own
	Connections       int    // of each pool
	AckDeadline       time.Duration
	HoldAt            string
}

func (c sqlServiceConfig) outbox() string { return c.Topic + "_out" }

// sqlServiceOptions are for services in the test's process.
type sqlServiceOptions struct {
	inbox   inbox.Config
	outside []message.HandlerMiddleware // around the inbox, outermost first
	during  func(msg *message.Message, tx wsql.Tx) error
}

// sqlService takes messages out of one table, and has its effect, identity and outgoing message in others.
type sqlService struct {
	sqlServiceConfig
	sqlServiceOptions
	router     *message.Router
	subscriber *wsql.Subscriber
	ended      chan error // Run
	closePools []func()
	runs       atomic.Int32 // of the handler
	close      func() error

	mu         sync.Mutex
	deliveries []string          // the UUID of each
	contexts   []context.Context // as they came
}

// newSQLService makes a service and the tables that it needs.
func newSQLService(config sqlServiceConfig, options sqlServiceOptions) (*sqlService, error) {
	s := &sqlService{sqlServiceConfig: config, sqlServiceOptions: options, ended: make(chan error, 1)}
	s.close = sync.OnceValue(s.end)
	if err := s.connect(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *sqlService) connect() error {
	engine := sqlEngines[s.Engine]
	db, err := s.open(engine, s.DSN)
	if err != nil {
		return err
	}
	queue := db
	if s.BrokerDSN != s.DSN {
		if queue, err = s.open(sqlEngines[sqlBrokers[s.Broker].engine], s.BrokerDSN); err != nil {
			return err
		}
	}
	if s.subscriber, err = sqlBrokers[s.Broker].subscriber(queue, s.AckDeadline); err != nil {
		return err
	}
	outbox, err := sqlBrokers[s.Engine].subscriber(db, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(s.subscriber.SubscribeInitialize(s.Topic), outbox.SubscribeInitialize(s.outbox()), outbox.Close()); err != nil {
		return err
	}
	s.inbox.Schema, s.inbox.Consumer, s.inbox.AutoInitializeSchema = engine.schema, s.Topic, true
	if s.inbox.Outbox == nil {
		s.inbox.Outbox = inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: sqlBrokers[s.Engine].schema}, nil)
	}
	if s.inbox.Identity == nil {
		s.inbox.Identity = inbox.MessageUUID
	}
	box, err := inbox.New(db, s.inbox, nil)
	if err != nil {
		return err
	}
	return s.route(box)
}

func (s *sqlService) open(engine sqlEngine, dsn string) (wsql.Beginner, error) {
	db, closePool, err := engine.pool(dsn, s.Connections)
	if err == nil {
		s.closePools = append(s.closePools, closePool)
	}
	return db, err
}

func (s *sqlService) route(box *inbox.Inbox) (err error) {
	s.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	s.router.AddMiddleware(s.watch)
	s.router.AddMiddleware(s.outside...)
	s.router.AddMiddleware(box.Middleware)
	s.router.AddHandler("handler", s.Topic, s.subscriber, cmp.Or(s.PublishTopic, s.outbox()), box.Publisher(), inbox.HandleTx(s.handle))
	return nil
}

// run returns when the service has subscribed. It goes on until close, or until ctx ends.
func (s *sqlService) run(ctx context.Context) error {
	go func() { s.ended <- s.router.Run(ctx) }()
	select {
	case <-s.router.Running():
		return nil
	case err := <-s.ended:
		return errors.Join(errors.New("the Router ended at once"), err)
	}
}

// end is the shutdown. The Router either closes the subscriber or only ends its subscription, whichever of two signals it sees first.
func (s *sqlService) end() (err error) {
	if s.router != nil && s.router.IsRunning() {
		err = errors.Join(s.router.Close(), <-s.ended)
	}
	if s.subscriber != nil {
		err = errors.Join(err, s.subscriber.Close())
	}
	for _, closePool := range s.closePools {
		closePool()
	}
	return err
}

// watch is the outermost middleware.
func (s *sqlService) watch(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		s.mu.Lock()
		s.deliveries, s.contexts = append(s.deliveries, msg.UUID), append(s.contexts, msg.Context())
		s.mu.Unlock()
		return next(msg)
	}
}

func (s *sqlService) delivered() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.deliveries...)
}

func (s *sqlService) firstContext() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.contexts[0]
}

func (s *sqlService) handle(msg *message.Message, tx wsql.Tx) ([]*message.Message, error) {
	s.runs.Add(1)
	id, err := s.inbox.Identity(msg)
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(msg.Context(), sqlEngines[s.Engine].effect, s.Topic, id.ID); err != nil {
		return nil, err
	}
	// A random UUID: a second run of the handler would produce another message.
	out := []*message.Message{message.NewMessage(watermill.NewUUID(), []byte(`{"of": "`+id.ID+`"}`))}
	if s.during == nil {
		return out, nil
	}
	return out, s.during(msg, tx)
}

// runSQLWorker runs a service until its standard input ends.
func runSQLWorker() error {
	var config sqlServiceConfig
	if err := json.Unmarshal([]byte(os.Getenv(workerConfigVariable)), &config); err != nil {
		return err
	}
	tell := printer()
	hold := func(place string, msg *message.Message) {
		if config.HoldAt == place {
			tell(workerEvent{Kind: workerHeld, ID: msg.UUID, Text: place})
			select {}
		}
	}
	s, err := newSQLService(config, sqlServiceOptions{
		outside: []message.HandlerMiddleware{func(next message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				produced, err := next(msg)
				hold(beforeAck, msg)
				return produced, err
			}
		}},
		during: func(msg *message.Message, _ wsql.Tx) error {
			hold(beforeCommit, msg)
			return nil
		},
	})
	if err != nil {
		return err
	}
	if err := s.run(context.Background()); err != nil {
		return err
	}
	tell(workerEvent{Kind: workerReady})
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.close()
}
