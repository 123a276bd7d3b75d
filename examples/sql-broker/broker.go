package main

import (
	"context"
	"fmt"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/watermill-inbox/inbox/examples/internal/inventory"
)

// A topic is a table: watermill_ and its name.
const (
	ordersTopic = "example_sql_orders"
	poisonTopic = "example_sql_orders_poison"
	outboxTopic = "example_sql_outbox"

	reservedTopic = "stock-reserved" // at the shop's broker
)

// The schema of broker and outbox. watermill-sql's default one for PostgreSQL holds every message back until the oldest writing transaction
// of the whole cluster has ended, and each producer has to write its transaction's id. The queue schema does neither. Its batch must be one:
// of a larger batch it acks also what was not handled yet when it was closed or an ack deadline passed.
var (
	schema  = wsql.PostgreSQLQueueSchema{SubscribeBatchSize: 1}
	offsets = wsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: false} // true in production; the story counts the rows
)

// newSubscriber makes the tables of the topics before the first message: none is made in a message's transaction.
func newSubscriber(pool *pgxpool.Pool, topics ...string) (*wsql.Subscriber, error) {
	subscriber, err := wsql.NewSubscriber(wsql.BeginnerFromPgx(pool), wsql.SubscriberConfig{
		SchemaAdapter:  schema,
		OffsetsAdapter: offsets,
		PollInterval:   100 * time.Millisecond,
		// AckDeadline is 30 s, longer than the inbox's TxTimeout, so that no handler that may still commit is overtaken.
	}, logger)
	if err != nil {
		return nil, err
	}
	for _, topic := range topics {
		if err := subscriber.SubscribeInitialize(topic); err != nil {
			return nil, fmt.Errorf("make the table of %s: %w", topic, err)
		}
	}
	return subscriber, nil
}

func newPublisher(pool *pgxpool.Pool) (message.Publisher, error) {
	return wsql.NewPublisher(wsql.BeginnerFromPgx(pool), wsql.PublisherConfig{SchemaAdapter: schema}, logger)
}

// createTables takes along what the last run left, so that the story begins at the beginning.
func createTables(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, fmt.Sprintf(`
		DROP TABLE IF EXISTS watermill_example_sql_orders, watermill_example_sql_orders_poison, watermill_example_sql_outbox,
			example_sql_inbox, example_sql_stock, example_sql_reservations;
		CREATE TABLE example_sql_stock (article TEXT PRIMARY KEY, available INT NOT NULL);
		CREATE TABLE example_sql_reservations (id BIGSERIAL PRIMARY KEY, order_id TEXT NOT NULL, article TEXT NOT NULL, quantity INT NOT NULL);
		INSERT INTO example_sql_stock VALUES ('%s', %d)`, inventory.Article, inventory.Stock))
	return err
}
