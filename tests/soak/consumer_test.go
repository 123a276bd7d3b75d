package soak

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
)

// handlersPerConsumer share one queue: watermill-amqp hands out one message per subscription at a time.
const handlersPerConsumer = 8

// consumerConfig is what a consumer process finds in its environment.
type consumerConfig struct {
	Database string // a name in databases
	DSN      string
	Broker   string
	Orders   string // exchange and queue
	Poison   string
}

func (c consumerConfig) amqp() amqp.Config {
	config := amqp.NewDurablePubSubConfig(c.Broker, amqp.GenerateQueueNameTopicName)
	config.Publish.ConfirmDelivery = true
	config.Publish.ChannelPoolSize = 4
	config.Consume.Qos.PrefetchCount = 5 // all of them come back when the process is killed
	return config
}

// consumer is an instance of the service.
type consumer struct {
	consumerConfig
	database
	proofs *sql.DB
	logger watermill.LoggerAdapter
	report reporter
}

// runConsumer runs until its standard input ends, so it also does not outlive the test.
func runConsumer(config string) error {
	c := &consumer{
		logger: watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))),
		report: reporter{lines: json.NewEncoder(os.Stdout)},
	}
	if err := json.Unmarshal([]byte(config), &c.consumerConfig); err != nil {
		return err
	}
	c.database = databaseNamed(c.Database)
	pool, closePool, err := c.open(c.DSN)
	if err != nil {
		return err
	}
	defer closePool()
	if c.proofs, err = sql.Open(c.driver, c.DSN); err != nil {
		return err
	}
	defer c.proofs.Close()
	c.proofs.SetMaxIdleConns(handlersPerConsumer)

	router, err := c.router(pool)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = router.Close()
	}()
	return router.Run(context.Background())
}

// router has the recommended middlewares. Retry spans a part of a restart, so some messages wait for the database and others are nacked.
func (c *consumer) router(pool wsql.Beginner) (*message.Router, error) {
	protection, inboxErr := inbox.New(pool, inbox.Config{
		Schema:        c.schema,
		Consumer:      "soak",
		ShareConsumer: true,
		Outbox:        inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: c.outbox}, c.logger),
		Observer:      &c.report,
	}, c.logger)
	subscriber, subscriberErr := amqp.NewSubscriber(c.amqp(), c.logger)
	publisher, publisherErr := amqp.NewPublisher(c.amqp(), c.logger)
	router, routerErr := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, c.logger)
	poison, poisonErr := middleware.PoisonQueueWithFilter(publisher, c.Poison, inbox.IsPoison)
	if err := errors.Join(inboxErr, subscriberErr, publisherErr, routerErr, poisonErr); err != nil {
		return nil, err
	}

	router.AddMiddleware(
		c.report.delivery,
		c.prove,
		poison,
		middleware.Retry{
			MaxRetries:          2,
			InitialInterval:     100 * time.Millisecond,
			Multiplier:          2,
			MaxInterval:         time.Second,
			RandomizationFactor: 0.5,
			ShouldRetry:         func(params middleware.RetryParams) bool { return inbox.IsRetryable(params.Err) },
			ResetContextOnRetry: true,
		}.Middleware,
		middleware.Recoverer,
		protection.Middleware,
	)
	for i := range handlersPerConsumer {
		router.AddHandler(fmt.Sprintf("orders-%d", i), c.Orders, subscriber, outgoing, protection.Publisher(), inbox.HandleTx(c.handle))
	}
	return router, nil
}

// order is the payload of a message.
type order struct {
	Number int `json:"number"`
}

// counterCount is how many rows the handlers of all consumers compete for.
const counterCount = 50

const countersOfOrder = 2

// countersOf are the rows that an order counts in. Its neighbour takes the same ones the other way round, so that transactions end in deadlocks.
func countersOf(number int) [countersOfOrder]int {
	pair := number / 2
	first := pair % counterCount
	second := (first + 1 + pair/counterCount%(counterCount-1)) % counterCount
	if number%2 == 1 {
		first, second = second, first
	}
	return [countersOfOrder]int{first, second}
}

func (c *consumer) handle(msg *message.Message, tx wsql.Tx) ([]*message.Message, error) {
	var order order
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return nil, err
	}
	for _, counter := range countersOf(order.Number) {
		result, err := tx.ExecContext(msg.Context(), c.count, counter)
		if err != nil {
			return nil, err
		}
		if updated, err := result.RowsAffected(); err != nil || updated != 1 {
			return nil, errors.Join(err, fmt.Errorf("%d rows of counters updated", updated))
		}
	}
	if _, err := tx.ExecContext(msg.Context(), c.record, msg.UUID); err != nil {
		return nil, err
	}
	return []*message.Message{message.NewMessage(msg.UUID, msg.Payload)}, nil
}

// prove asks the database, on a connection of its own and before the ack, whether the effect is there. The end of the soak could not tell:
// another copy of the message would have made good a wrong ack by then. An ack that comes before the question is wrong for the same reason.
func (c *consumer) prove(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		select {
		case <-msg.Acked():
			c.report.unproven(msg.UUID + " was acked before the Router could")
			return produced, err
		default:
		}
		if err != nil {
			return produced, err
		}
		effects, err := c.effectsOf(msg)
		if err == nil && effects != 1 {
			c.report.unproven(fmt.Sprintf("%s was about to be acked with %d effects in the database", msg.UUID, effects))
		}
		return produced, err
	}
}

// effectsOf waits for the database, which may just have died.
func (c *consumer) effectsOf(msg *message.Message) (effects int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(msg.Context()), 20*time.Second)
	defer cancel()
	for {
		if err = c.proofs.QueryRowContext(ctx, c.recorded, msg.UUID).Scan(&effects); err == nil {
			return effects, nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("no proof of the effect of %s: %w", msg.UUID, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
