// Command nats-postgres reserves stock for orders that NATS JetStream delivers. Their producer knows nothing of Watermill.
//
//	go run ./examples/nats-postgres
//
// This file is the service, broker.go is what it needs of NATS and the producer.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/examples/internal/demo"
	"github.com/watermill-inbox/inbox/postgres"
)

const (
	stream   = "EXAMPLE_ORDERS" // also the topic
	consumer = "inventory"      // of JetStream and of the inbox: the logical consumer, the same for all instances

	stock     = 100
	timeLimit = time.Minute

	defaultPostgres = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
)

var logger = demo.Logger()

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "nats-postgres:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	pool, err := pgxpool.New(ctx, demo.Env("INBOX_TEST_POSTGRES", defaultPostgres))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := createTables(ctx, pool); err != nil {
		return err
	}

	broker, err := connect(ctx)
	if err != nil {
		return err
	}
	defer broker.connection.Close()
	reports := make(demo.Reports, 10)
	router, err := newRouter(broker, pool, reports)
	if err != nil {
		return err
	}
	stop, err := demo.Start(ctx, router)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	if err := broker.play(ctx, reports); err != nil {
		return err
	}
	return report(ctx, pool)
}

func newRouter(broker *broker, pool *pgxpool.Pool, observer inbox.Observer) (*message.Router, error) {
	stockInbox, err := inbox.New(wsql.BeginnerFromPgx(pool), inbox.Config{
		Schema:               postgres.Schema{},
		Consumer:             consumer,
		AutoInitializeSchema: true, // in production the DDL belongs into your migrations
		Observer:             observer,
	}, logger)
	if err != nil {
		return nil, err
	}
	subscriber, err := broker.subscriber()
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, logger)
	if err != nil {
		return nil, err
	}
	// Examples rabbitmq-postgres and rabbitmq-mysql show the poison queue and Retry that belong before the inbox, and the outbox.
	router.AddMiddleware(middleware.Recoverer, stockInbox.Middleware)
	router.AddConsumerHandler(consumer, stream, subscriber, func(msg *message.Message) error {
		tx, _ := inbox.PgxTxFromContext(msg.Context())
		return reserve(msg, tx)
	})
	return router, nil
}

// reserve is the business. It knows nothing of repetitions; it only has to use tx for all it writes and to return every error.
func reserve(msg *message.Message, tx pgx.Tx) error {
	var order struct{ Quantity int }
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return fmt.Errorf("parse order: %w", err)
	}
	tag, err := tx.Exec(msg.Context(), `UPDATE example_nats_stock SET available = available - $1 WHERE available >= $1`, order.Quantity)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("fewer than %d in stock", order.Quantity)
	}
	return nil
}

func createTables(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, fmt.Sprintf(`
		DROP TABLE IF EXISTS example_nats_stock;
		CREATE TABLE example_nats_stock (available INT NOT NULL);
		INSERT INTO example_nats_stock VALUES (%d)`, stock))
	return err
}

func report(ctx context.Context, pool *pgxpool.Pool) error {
	var available int
	if err := pool.QueryRow(ctx, `SELECT available FROM example_nats_stock`).Scan(&available); err != nil {
		return err
	}
	fmt.Printf("database   %d of %d left\n", available, stock)
	if want := stock - 1 - 2; available != want {
		return fmt.Errorf("%d left, want %d", available, want)
	}
	return nil
}
