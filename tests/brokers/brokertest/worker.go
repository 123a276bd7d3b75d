package brokertest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/postgres"
)

const (
	workerVariable = "INBOX_TEST_BROKER_WORKER"
	goOnCommand    = "go on"
	closeTimeout   = 15 * time.Second
)

// workerConfig is what a worker process finds in its environment.
type workerConfig struct {
	Broker, Address, DSN, Topic, Group string
	Behaviour                          behaviour
}

// behaviour is what is special about a worker. The zero value is a good service.
type behaviour struct {
	FailFirst bool   // the first run of the handler fails after it has written its effect
	HoldAt    string // where to wait for ever, to be killed there, or for leave to go on
	HoldAfter int    // so many deliveries pass first
	Poison    string // the topic of a PoisonQueueWithFilter; empty: none

	TxTimeout time.Duration // 0: the default
}

// Where to hold.
const (
	beforeCommit = "effect written, not committed"
	beforeAck    = "committed, not acked"
)

// Main is the TestMain of a wiring. It makes the test binary a worker process where a test asks for one.
func Main(m *testing.M, brokers ...Broker) {
	encoded := os.Getenv(workerVariable)
	if encoded == "" {
		os.Exit(m.Run())
	}
	if err := runWorker(encoded, brokers); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// worker is an instance of a service.
type worker struct {
	workerConfig
	broker Broker
	logger watermill.LoggerAdapter
	tell   func(event)
	gate   chan struct{} // open: nothing is held

	failed atomic.Bool
	ended  atomic.Int32 // deliveries
}

// runWorker runs until its standard input ends, so it also does not outlive the test.
func runWorker(encoded string, brokers []Broker) error {
	w := &worker{
		logger: watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))),
		tell:   printer(),
		gate:   make(chan struct{}),
	}
	if err := json.Unmarshal([]byte(encoded), &w.workerConfig); err != nil {
		return err
	}
	for _, broker := range brokers {
		if broker.Name == w.Broker {
			w.broker = broker
		}
	}
	if w.broker.Subscriber == nil {
		return fmt.Errorf("Main was not given the broker %q", w.Broker)
	}
	if w.broker.Identity == nil {
		w.broker.Identity = inbox.MessageUUID
	}
	return w.run()
}

func (w *worker) run() error {
	pool, err := pgxpool.New(context.Background(), w.DSN)
	if err != nil {
		return err
	}
	defer pool.Close()
	subscriber, subscriberErr := w.broker.Subscriber(w.Address, w.Topic, w.Group, errorTeller{w.logger, w.tell})
	publisher, publisherErr := w.broker.Publisher(w.Address, w.logger)
	if err := errors.Join(subscriberErr, publisherErr); err != nil {
		return err
	}
	defer func() { _ = publisher.Close() }()
	// The Router either closes the subscriber or only ends its subscription, whichever of two signals it sees first.
	defer func() { _ = subscriber.Close() }()

	router, err := w.router(wsql.BeginnerFromPgx(pool), subscriber, publisher)
	if err != nil {
		return err
	}
	go w.obey(router)
	return router.Run(context.Background())
}

// obey reads commands. The Router closes when there are no more.
func (w *worker) obey(router *message.Router) {
	<-router.Running()
	w.tell(event{Kind: ready})
	open := sync.OnceFunc(func() { close(w.gate) })
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if lines.Text() == goOnCommand {
			open()
		}
	}
	_ = router.Close()
}

func (w *worker) router(db wsql.Beginner, subscriber message.Subscriber, publisher message.Publisher) (*message.Router, error) {
	box, err := inbox.New(db, inbox.Config{
		Schema:    postgres.Schema{},
		Consumer:  w.Group,
		Identity:  w.broker.Identity,
		Outbox:    inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: wsql.DefaultPostgreSQLSchema{}}, w.logger),
		Observer:  observer(w.tell),
		TxTimeout: w.Behaviour.TxTimeout,
	}, w.logger)
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: closeTimeout}, w.logger)
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(w.watch)
	if w.Behaviour.Poison != "" {
		poison, err := middleware.PoisonQueueWithFilter(publisher, w.Behaviour.Poison, inbox.IsPoison)
		if err != nil {
			return nil, err
		}
		router.AddMiddleware(poison)
	}
	router.AddMiddleware(box.Middleware)
	router.AddHandler("handler", w.Topic, subscriber, outboxTopic, box.Publisher(), inbox.HandleTx(w.handle))
	return router, nil
}

// printer returns only when the line is in the pipe. What is told before a kill is then known to the test.
func printer() func(event) {
	var mu sync.Mutex
	lines := json.NewEncoder(os.Stdout)
	return func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = lines.Encode(e)
	}
}
