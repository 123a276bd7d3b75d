// Command rabbitmq-deferred takes orders over from RabbitMQ at once, acks them, and reserves stock later: PostgreSQL holds the orders that wait, stock,
// inbox and outbox.
//
//	go run ./examples/rabbitmq-deferred
//
// This file is the business and its database, service.go are the three parts of the service, story.go plays the order service and the shop.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/examples/internal/demo"
	"github.com/watermill-inbox/inbox/examples/internal/inventory"
)

const defaultAddress = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"

func main() {
	s := &story{w: os.Stdout, system: "rabbitmq-deferred"}
	if err := s.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "rabbitmq-deferred:", err)
		os.Exit(1)
	}
}

func openPool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(demo.Env("INBOX_TEST_POSTGRES", defaultAddress))
	if err != nil {
		return nil, err
	}
	config.MaxConns = connections // pgx's own default is 4, or the number of processors
	return pgxpool.NewWithConfig(ctx, config)
}

// createTables makes all tables of the example anew. In production the DDL belongs into your migrations.
func createTables(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, fmt.Sprintf(`
		DROP TABLE IF EXISTS example_deferred_stock, example_deferred_reservations, example_deferred_inbox, example_deferred_pending, example_deferred_outgoing;
		CREATE TABLE example_deferred_stock (article TEXT PRIMARY KEY, available INT NOT NULL);
		CREATE TABLE example_deferred_reservations (id BIGSERIAL PRIMARY KEY, order_id TEXT NOT NULL, article TEXT NOT NULL, quantity INT NOT NULL);
		INSERT INTO example_deferred_stock VALUES ('%s', %d)`, inventory.Article, inventory.Stock))
	if err != nil {
		return err
	}
	// Before the first order: no table is made in a message's transaction. The other two are made by the Receiver.
	return deferred.InitializeOutbox(ctx, wsql.BeginnerFromPgx(pool), schema)
}

// reserve is the business. It knows nothing of repetitions; it only has to use tx for all it writes and to return every error.
func reserve(msg *message.Message, tx pgx.Tx) ([]*message.Message, error) {
	order, err := inventory.ParseOrder(msg)
	if err != nil {
		return nil, err
	}
	event := inventory.Reserved{Order: order}
	row := tx.QueryRow(msg.Context(),
		`UPDATE example_deferred_stock SET available = available - $1 WHERE article = $2 AND available >= $1 RETURNING available`,
		order.Quantity, order.Article)
	if err := row.Scan(&event.Left); errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("order %s: fewer than %d %s in stock", order.ID, order.Quantity, order.Article)
	} else if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(msg.Context(),
		`INSERT INTO example_deferred_reservations (order_id, article, quantity) VALUES ($1, $2, $3)`,
		order.ID, order.Article, order.Quantity); err != nil {
		return nil, err
	}

	produced, err := event.Message()
	return []*message.Message{produced}, err
}
