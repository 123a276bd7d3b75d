// Command rabbitmq-postgres reserves stock for orders: RabbitMQ delivers them, PostgreSQL holds stock, inbox and outbox.
//
//	go run ./examples/rabbitmq-postgres
//
// This file is what depends on the database, ../internal/inventory/service.go is the Router with its middlewares and the relay.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/examples/internal/demo"
	"github.com/watermill-inbox/inbox/examples/internal/inventory"
	"github.com/watermill-inbox/inbox/postgres"
)

// The outbox. watermill-sql's default schema for PostgreSQL would hold every event back until the oldest writing transaction of the
// whole cluster has ended, and it never deletes. The queue schema does neither. Its batch must be one: from a larger batch it deletes
// also what the relay had not published yet when it was closed or an ack deadline passed.
var (
	outboxSchema  = wsql.PostgreSQLQueueSchema{SubscribeBatchSize: 1}
	outboxOffsets = wsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true}
)

const defaultAddress = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "rabbitmq-postgres:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	address := demo.Env("INBOX_TEST_POSTGRES", defaultAddress)
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return err
	}
	defer pool.Close()
	// The relay keeps a transaction open while it waits for RabbitMQ. With a pool of its own it never waits for the handlers, nor they for it.
	relayPool, err := pgxpool.New(ctx, address)
	if err != nil {
		return err
	}
	defer relayPool.Close()

	if err := createTables(ctx, pool); err != nil {
		return err
	}
	outbox, err := wsql.NewSubscriber(wsql.BeginnerFromPgx(relayPool), wsql.SubscriberConfig{
		SchemaAdapter:  outboxSchema,
		OffsetsAdapter: outboxOffsets,
		PollInterval:   100 * time.Millisecond,
	}, demo.Logger())
	if err != nil {
		return err
	}
	// Before the first order: no table is made in a message's transaction.
	if err := outbox.SubscribeInitialize(inventory.OutboxTopic); err != nil {
		return err
	}

	deliveries := make(demo.Reports, 100)
	stockInbox, err := inbox.New(wsql.BeginnerFromPgx(pool), inbox.Config{
		Schema:        postgres.Schema{},
		Consumer:      inventory.Consumer,
		ShareConsumer: true, // by the workers
		Outbox: inbox.ForwarderOutbox(
			wsql.PublisherConfig{SchemaAdapter: outboxSchema},
			forwarder.PublisherConfig{ForwarderTopic: inventory.OutboxTopic},
			demo.Logger(),
		),
		AutoInitializeSchema: true, // in production the DDL belongs into your migrations
		Observer:             deliveries,
	}, demo.Logger())
	if err != nil {
		return err
	}

	service := inventory.Service{System: "rabbitmq-postgres", Inbox: stockInbox, Handler: inbox.HandlePgxTx(reserve), Outbox: outbox}
	if err := inventory.Play(ctx, service, deliveries); err != nil {
		return err
	}
	return report(ctx, pool)
}

// reserve is the business. It knows nothing of repetitions; it only has to use tx for all it writes and to return every error.
func reserve(msg *message.Message, tx pgx.Tx) ([]*message.Message, error) {
	order, err := inventory.ParseOrder(msg)
	if err != nil {
		return nil, err
	}
	event := inventory.Reserved{Order: order}
	row := tx.QueryRow(msg.Context(),
		`UPDATE example_stock SET available = available - $1 WHERE article = $2 AND available >= $1 RETURNING available`,
		order.Quantity, order.Article)
	if err := row.Scan(&event.Left); errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("order %s: fewer than %d %s in stock", order.ID, order.Quantity, order.Article)
	} else if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(msg.Context(),
		`INSERT INTO example_reservations (order_id, article, quantity) VALUES ($1, $2, $3)`,
		order.ID, order.Article, order.Quantity); err != nil {
		return nil, err
	}

	produced, err := event.Message()
	return []*message.Message{produced}, err
}

func createTables(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, fmt.Sprintf(`
		DROP TABLE IF EXISTS example_stock, example_reservations;
		CREATE TABLE example_stock (article TEXT PRIMARY KEY, available INT NOT NULL);
		CREATE TABLE example_reservations (id BIGSERIAL PRIMARY KEY, order_id TEXT NOT NULL, article TEXT NOT NULL, quantity INT NOT NULL);
		INSERT INTO example_stock VALUES ('%s', %d)`, inventory.Article, inventory.Stock))
	return err
}

func report(ctx context.Context, pool *pgxpool.Pool) error {
	var available, reservations, reserved int
	err := pool.QueryRow(ctx, `SELECT (SELECT available FROM example_stock WHERE article = $1), COUNT(*), SUM(quantity) FROM example_reservations`,
		inventory.Article).Scan(&available, &reservations, &reserved)
	if err != nil {
		return err
	}
	fmt.Printf("database        %d of %d %s left, %d reservations of %d\n", available, inventory.Stock, inventory.Article, reservations, reserved)
	return nil
}
