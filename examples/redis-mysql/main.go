// Command redis-mysql reserves stock for orders that Redis Streams deliver. Their producer knows nothing of Watermill.
//
//	go run ./examples/redis-mysql
//
// This file is the service, broker.go is what it needs of Redis and the producer, database.go what it needs of MySQL or MariaDB.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/examples/internal/demo"
	"github.com/watermill-inbox/inbox/mysql"
)

const (
	consumer = "inventory" // the consumer group and the inbox's consumer: the logical consumer, the same for all instances

	stock     = 100
	timeLimit = time.Minute
)

var logger = demo.Logger()

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "redis-mysql:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	db, err := openDatabase(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := createTables(ctx, db); err != nil {
		return err
	}

	broker, err := connect(ctx)
	if err != nil {
		return err
	}
	defer broker.close()
	reports := make(demo.Reports, 10)
	router, err := newRouter(broker, db, reports)
	if err != nil {
		return err
	}
	stop, err := demo.Start(ctx, router)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	if err := play(ctx, broker, reports); err != nil {
		return err
	}
	return report(ctx, db)
}

// play publishes two orders. The producer of the second one got no answer, so it publishes it again.
func play(ctx context.Context, broker *broker, reports demo.Reports) error {
	first, second := "order-"+watermill.NewShortUUID(), "order-"+watermill.NewShortUUID()
	for _, order := range []struct {
		id       string
		quantity int
	}{{first, 1}, {second, 2}, {second, 2}} {
		place, err := broker.publish(ctx, order.id, order.quantity)
		if err != nil {
			return err
		}
		fmt.Printf("orders     publishes %s: %d, as entry %s\n", order.id, order.quantity, place)
		if err := reports.Await(ctx); err != nil {
			return err
		}
	}
	return nil
}

func newRouter(broker *broker, db *sql.DB, observer inbox.Observer) (*message.Router, error) {
	stockInbox, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{
		Schema:   mysql.Schema{},
		Consumer: consumer,
		// The orders have no payload. This tells one order's content from another's, should an id be used twice.
		Fingerprint:          inbox.PayloadAndMetadataSHA256(quantityField),
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
	// Examples rabbitmq-postgres and rabbitmq-mysql show the outbox, and the poison queue and Retry that belong before the inbox. Redis needs
	// the poison queue, too: a message that fails for ever blocks its consumer.
	router.AddMiddleware(middleware.Recoverer, stockInbox.Middleware)
	router.AddConsumerHandler(consumer, broker.stream, subscriber, inbox.ConsumeStdTx(reserve))
	return router, nil
}

// reserve is the business. It knows nothing of repetitions; it only has to use tx for all it writes and to return every error.
func reserve(msg *message.Message, tx *sql.Tx) error {
	quantity, err := strconv.Atoi(msg.Metadata[quantityField])
	if err != nil {
		return fmt.Errorf("parse order: %w", err)
	}
	result, err := tx.ExecContext(msg.Context(), `UPDATE example_redis_stock SET available = available - ? WHERE available >= ?`, quantity, quantity)
	if err != nil {
		return err
	}
	if updated, err := result.RowsAffected(); err != nil {
		return err
	} else if updated == 0 {
		return fmt.Errorf("fewer than %d in stock", quantity)
	}
	return nil
}
