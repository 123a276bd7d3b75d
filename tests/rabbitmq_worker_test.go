package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
)

// handlersPerWorker share one queue: watermill-amqp hands out one message per subscription at a time.
const handlersPerWorker = 4

// workerConfig is what a worker process finds in its environment.
type workerConfig struct {
	Database string // a key of stockDatabases
	DSN      string
	Broker   string
	Topics   stockTopics

	// HoldAt is where the worker stops for ever, to be killed there, once it has finished holdAfter deliveries. Empty: nowhere.
	HoldAt string
}

// Where to be killed.
const (
	beforeCommit = "effect written, not committed"
	beforeAck    = "committed, not acked"

	holdAfter = 10
)

const workerConfigVariable = "INBOX_TEST_WORKER"

// stockTopics are names of exchanges, unique for each run.
type stockTopics struct{ Orders, Reserved, Poison string }

const outboxTopic = "outbox"

func (c workerConfig) amqp() amqp.Config {
	config := amqp.NewDurablePubSubConfig(c.Broker, amqp.GenerateQueueNameTopicName)
	config.Publish.ConfirmDelivery = true
	config.Publish.ChannelPoolSize = 4
	config.Consume.Qos.PrefetchCount = 10 // all of them come back when the process is killed
	return config
}

// workerEvent is one line that a worker prints.
type workerEvent struct {
	Kind        string `json:"kind"`
	ID          string `json:"id,omitempty"`
	Redelivered bool   `json:"redelivered,omitempty"` // RabbitMQ says so
	Text        string `json:"text,omitempty"`        // the error, or where the worker stands
}

// Kinds of events. The last three end a delivery.
const (
	workerReady     = "ready"
	workerHeld      = "held" // the worker waits to be killed
	workerProcessed = "processed"
	workerDuplicate = "duplicate"
	workerFailed    = "failed"
)

// trace follows one delivery, in its context.
type trace struct {
	ran  bool   // the handler, to its end
	hold func() // just before it returns
}

type traceKey struct{}

// worker is an instance of the inventory service.
type worker struct {
	workerConfig
	logger watermill.LoggerAdapter
	tells  func(workerEvent)
	ended  atomic.Int32 // deliveries
}

// runRabbitMQWorker runs until its standard input ends, so it also does not outlive the test.
func runRabbitMQWorker() error {
	w := &worker{
		logger: watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))),
		tells:  printer(),
	}
	if err := json.Unmarshal([]byte(os.Getenv(workerConfigVariable)), &w.workerConfig); err != nil {
		return err
	}
	database := stockDatabases[w.Database]
	pool, closePool, err := database.open(w.DSN)
	if err != nil {
		return err
	}
	defer closePool()

	router, err := w.router(pool, database)
	if err != nil {
		return err
	}
	go func() {
		<-router.Running()
		w.tells(workerEvent{Kind: workerReady})
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = router.Close()
	}()
	return router.Run(context.Background())
}

// printer returns only when the line is in the pipe. What is told before an ack is then known to the test, whatever happens next.
func printer() func(workerEvent) {
	var mu sync.Mutex
	lines := json.NewEncoder(os.Stdout)
	return func(event workerEvent) {
		mu.Lock()
		defer mu.Unlock()
		_ = lines.Encode(event)
	}
}

func (w *worker) router(pool wsql.Beginner, database stockDatabase) (*message.Router, error) {
	stockInbox, err := inbox.New(pool, inbox.Config{
		Schema:               database.schema,
		Consumer:             "inventory",
		ShareConsumer:        true,
		AutoInitializeSchema: true, // by all workers at the same time
		Outbox: inbox.ForwarderOutbox(
			wsql.PublisherConfig{SchemaAdapter: database.outbox},
			forwarder.PublisherConfig{ForwarderTopic: outboxTopic},
			w.logger,
		),
	}, w.logger)
	if err != nil {
		return nil, err
	}
	subscriber, subscriberErr := amqp.NewSubscriber(w.amqp(), w.logger)
	publisher, publisherErr := amqp.NewPublisher(w.amqp(), w.logger)
	router, routerErr := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, w.logger)
	poison, poisonErr := middleware.PoisonQueueWithFilter(publisher, w.Topics.Poison, inbox.IsPoison)
	if err := errors.Join(subscriberErr, publisherErr, routerErr, poisonErr); err != nil {
		return nil, err
	}

	router.AddMiddleware(
		w.tell,
		middleware.Recoverer,
		poison,
		middleware.Retry{
			MaxRetries:          5,
			InitialInterval:     50 * time.Millisecond,
			ShouldRetry:         func(params middleware.RetryParams) bool { return inbox.IsRetryable(params.Err) },
			ResetContextOnRetry: true,
		}.Middleware,
		stockInbox.Middleware,
	)
	for i := range handlersPerWorker {
		router.AddHandler(fmt.Sprintf("inventory-%d", i), w.Topics.Orders, subscriber, w.Topics.Reserved, stockInbox.Publisher(),
			inbox.HandleTx(database.reserve))
	}
	return router, nil
}

// tell prints how each delivery ended, just before the Router acks or nacks it.
func (w *worker) tell(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		delivery := &trace{hold: func() { w.holdIf(beforeCommit, msg) }}
		msg.SetContext(context.WithValue(msg.Context(), traceKey{}, delivery))
		produced, err := h(msg)

		event := workerEvent{Kind: workerDuplicate, ID: msg.UUID, Redelivered: amqp.IsMessageRedelivered(msg)}
		switch {
		case err != nil:
			event.Kind, event.Text = workerFailed, err.Error()
		case delivery.ran:
			event.Kind = workerProcessed
			w.holdIf(beforeAck, msg)
		}
		w.ended.Add(1)
		w.tells(event)
		return produced, err
	}
}

// holdIf stops at the worst moments.
func (w *worker) holdIf(place string, msg *message.Message) {
	if w.HoldAt == place && w.ended.Load() >= holdAfter {
		w.tells(workerEvent{Kind: workerHeld, ID: msg.UUID, Text: place})
		select {}
	}
}
