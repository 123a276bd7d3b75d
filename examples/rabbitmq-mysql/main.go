// Command rabbitmq-mysql reserves stock for orders: RabbitMQ delivers them, MySQL or MariaDB holds stock, inbox and outbox.
//
//	go run ./examples/rabbitmq-mysql
//
// This file is what depends on the database, ../internal/inventory/service.go is the Router with its middlewares and the relay.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	driver "github.com/go-sql-driver/mysql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/examples/internal/demo"
	"github.com/watermill-inbox/inbox/examples/internal/inventory"
	"github.com/watermill-inbox/inbox/mysql"
)

// The outbox. With watermill-sql's default schema for MySQL the relay would lock the end of the table while it publishes a batch, and
// handlers could not insert; nor does it ever delete. The queue schema with a batch of one locks the first row, and an empty table for
// one moment. The batch must be one also because from a larger one the queue schema deletes what the relay had not published yet
// when it was closed or an ack deadline passed.
var (
	outboxSchema  = wsql.MySQLQueueSchema{SubscribeBatchSize: 1}
	outboxOffsets = wsql.MySQLQueueOffsetsAdapter{DeleteOnAck: true}
)

const (
	defaultMySQL   = "root@tcp(127.0.0.1:3307)/test"
	defaultMariaDB = "root@tcp(127.0.0.1:3306)/test"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "rabbitmq-mysql:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	db, address, err := connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	// The relay keeps a transaction open while it waits for RabbitMQ. With a pool of its own it never waits for the handlers, nor they for it.
	relayDB, err := open(address)
	if err != nil {
		return err
	}
	defer func() { _ = relayDB.Close() }()

	if err := createTables(ctx, db); err != nil {
		return err
	}
	outbox, err := wsql.NewSubscriber(wsql.BeginnerFromStdSQL(relayDB), wsql.SubscriberConfig{
		SchemaAdapter:  outboxSchema,
		OffsetsAdapter: outboxOffsets,
		PollInterval:   100 * time.Millisecond,
	}, demo.Logger())
	if err != nil {
		return err
	}
	// Before the first order: CREATE TABLE in a message's transaction would commit it.
	if err := outbox.SubscribeInitialize(inventory.OutboxTopic); err != nil {
		return err
	}

	deliveries := make(demo.Reports, 100)
	stockInbox, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{
		Schema:        mysql.Schema{},
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

	service := inventory.Service{System: "rabbitmq-mysql", Inbox: stockInbox, Handler: inbox.HandleStdTx(reserve), Outbox: outbox}
	if err := inventory.Play(ctx, service, deliveries); err != nil {
		return err
	}
	return report(ctx, db)
}

// reserve is the business. It knows nothing of repetitions; it only has to use tx for all it writes and to return every error.
func reserve(msg *message.Message, tx *sql.Tx) ([]*message.Message, error) {
	order, err := inventory.ParseOrder(msg)
	if err != nil {
		return nil, err
	}
	ctx := msg.Context()
	result, err := tx.ExecContext(ctx, `UPDATE example_stock SET available = available - ? WHERE article = ? AND available >= ?`,
		order.Quantity, order.Article, order.Quantity)
	if err != nil {
		return nil, err
	}
	if updated, err := result.RowsAffected(); err != nil {
		return nil, err
	} else if updated == 0 {
		return nil, fmt.Errorf("order %s: fewer than %d %s in stock", order.ID, order.Quantity, order.Article)
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO example_reservations (order_id, article, quantity) VALUES (?, ?, ?)`,
		order.ID, order.Article, order.Quantity); err != nil {
		return nil, err
	}

	event := inventory.Reserved{Order: order}
	if err := tx.QueryRowContext(ctx, `SELECT available FROM example_stock WHERE article = ?`, order.Article).Scan(&event.Left); err != nil {
		return nil, err
	}
	produced, err := event.Message()
	return []*message.Message{produced}, err
}

// connect takes MySQL, or MariaDB where there is none: the code is the same.
func connect(ctx context.Context) (*sql.DB, string, error) {
	var errs []error
	for _, address := range []string{
		demo.Env("INBOX_TEST_MYSQL", defaultMySQL),
		demo.Env("INBOX_TEST_MARIADB", defaultMariaDB),
	} {
		db, err := open(address)
		if err == nil {
			var version string
			if err = db.QueryRowContext(ctx, `SELECT VERSION()`).Scan(&version); err == nil {
				fmt.Println("database        version", version)
				return db, address, nil
			}
			_ = db.Close()
		}
		errs = append(errs, err)
	}
	return nil, "", errors.Join(errs...)
}

func open(address string) (*sql.DB, error) {
	config, err := driver.ParseDSN(address)
	if err != nil {
		return nil, err
	}
	// The driver has no context in COMMIT: only this ends the wait for a server that does not answer.
	config.ReadTimeout = 10 * time.Second
	// The server ends a wait for a lock before the inbox (WaitTimeout, 5 s) has to close the connection to do so.
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	config.Params["innodb_lock_wait_timeout"] = "4"
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func createTables(ctx context.Context, db *sql.DB) error {
	for _, statement := range []string{
		`DROP TABLE IF EXISTS example_stock, example_reservations`,
		`CREATE TABLE example_stock (article VARCHAR(100) PRIMARY KEY, available INT NOT NULL)`,
		`CREATE TABLE example_reservations (id BIGINT AUTO_INCREMENT PRIMARY KEY, order_id VARCHAR(100) NOT NULL, article VARCHAR(100) NOT NULL, quantity INT NOT NULL)`,
		fmt.Sprintf(`INSERT INTO example_stock VALUES ('%s', %d)`, inventory.Article, inventory.Stock),
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func report(ctx context.Context, db *sql.DB) error {
	var available, reservations, reserved int
	err := db.QueryRowContext(ctx, `SELECT (SELECT available FROM example_stock WHERE article = ?), COUNT(*), SUM(quantity) FROM example_reservations`,
		inventory.Article).Scan(&available, &reservations, &reserved)
	if err != nil {
		return err
	}
	fmt.Printf("database        %d of %d %s left, %d reservations of %d\n", available, inventory.Stock, inventory.Article, reservations, reserved)
	return nil
}
