// Command sql-broker reserves stock for orders whose broker is a table in PostgreSQL: watermill-sql delivers its rows. The producer is a
// plain INSERT, and repeats it when it gets no answer.
//
//	go run ./examples/sql-broker
//
// This file is the service, broker.go is what it needs of watermill-sql, story.go the producer and what is printed.
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

const (
	timeLimit = time.Minute

	defaultPostgres = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
)

var logger = demo.Logger()

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "sql-broker:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	address := demo.Env("INBOX_TEST_POSTGRES", defaultPostgres)
	pool, err := pgxpool.New(ctx, address)
	if err != nil {
		return err
	}
	defer pool.Close()
	// A subscriber keeps a transaction open while a message is handled. With a pool of its own it never takes a connection that the inbox
	// waits for. This address may be that of another database: nothing else changes then.
	brokerPool, err := pgxpool.New(ctx, address)
	if err != nil {
		return err
	}
	defer brokerPool.Close()
	if err := createTables(ctx, pool); err != nil {
		return err
	}

	shop := newShop()
	reports := make(demo.Reports, 10)
	router, err := newRouter(pool, brokerPool, reports)
	if err != nil {
		return err
	}
	relay, err := newRelay(pool, shop)
	if err != nil {
		return err
	}
	stop, err := demo.Start(ctx, router, relay)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	story := story{orders: brokerPool, db: pool, reports: reports, shop: shop}
	return story.play(ctx)
}

func newRouter(pool, brokerPool *pgxpool.Pool, observer inbox.Observer) (*message.Router, error) {
	orders, err := newSubscriber(brokerPool, ordersTopic, poisonTopic)
	if err != nil {
		return nil, err
	}
	poison, err := newPublisher(brokerPool)
	if err != nil {
		return nil, err
	}
	stockInbox, err := inbox.New(wsql.BeginnerFromPgx(pool), inbox.Config{
		Schema:   postgres.Schema{MessagesTable: "example_sql_inbox"}, // made anew each time; yours is inbox_messages
		Consumer: inventory.Consumer,
		// No Identity: the column uuid is the message's UUID, and the producer fills it.
		Outbox: inbox.ForwarderOutbox(
			wsql.PublisherConfig{SchemaAdapter: schema},
			forwarder.PublisherConfig{ForwarderTopic: outboxTopic},
			logger,
		),
		AutoInitializeSchema: true, // in production the DDL belongs into your migrations
		Observer:             observer,
	}, logger)
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, logger)
	if err != nil {
		return nil, err
	}
	middlewares, err := inventory.Middlewares(stockInbox, poison, poisonTopic, logger)
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(middlewares...)
	router.AddHandler("inventory", ordersTopic, orders, reservedTopic, stockInbox.Publisher(), inbox.HandlePgxTx(reserve))
	return router, nil
}

// newRelay carries the events of the outbox to the broker of those who listen. The outbox is always in the database of the inbox.
func newRelay(pool *pgxpool.Pool, to message.Publisher) (*forwarder.Forwarder, error) {
	outbox, err := newSubscriber(pool, outboxTopic)
	if err != nil {
		return nil, err
	}
	return forwarder.NewForwarder(outbox, to, logger, forwarder.Config{ForwarderTopic: outboxTopic})
}

// reserve is the business. It knows nothing of repetitions; it only has to use tx for all it writes and to return every error.
func reserve(msg *message.Message, tx pgx.Tx) ([]*message.Message, error) {
	order, err := inventory.ParseOrder(msg)
	if err != nil {
		return nil, err
	}
	event := inventory.Reserved{Order: order}
	row := tx.QueryRow(msg.Context(),
		`UPDATE example_sql_stock SET available = available - $1 WHERE article = $2 AND available >= $1 RETURNING available`,
		order.Quantity, order.Article)
	if err := row.Scan(&event.Left); errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("order %s: fewer than %d %s in stock", order.ID, order.Quantity, order.Article)
	} else if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(msg.Context(),
		`INSERT INTO example_sql_reservations (order_id, article, quantity) VALUES ($1, $2, $3)`,
		order.ID, order.Article, order.Quantity); err != nil {
		return nil, err
	}

	produced, err := event.Message()
	return []*message.Message{produced}, err
}
