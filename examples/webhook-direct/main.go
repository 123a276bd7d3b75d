// Command webhook-direct receives webhooks and processes them at once, with nothing to install: SQLite is the database. It sends itself
// three requests, one of them a repetition.
//
//	go run ./examples/webhook-direct
//
// This file is the service, sender.go the sender.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/brokers/inboxhttp"
	"github.com/watermill-inbox/inbox/sqlite"
)

const path = "/webhooks/payments"

// logger is silent to keep the output readable. Put watermill.NewStdLogger(true, false) here to watch Watermill at work.
var logger watermill.LoggerAdapter = watermill.NopLogger{}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "webhook-direct:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "webhook-direct")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := openDatabase(filepath.Join(dir, "payments.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	subscriber, router, err := newService(db)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.WithoutCancel(ctx)) }()
	select {
	case <-router.Running():
	case err := <-ended:
		return fmt.Errorf("start: %w", err)
	}
	defer func() { err = errors.Join(err, router.Close(), <-ended) }()

	address, err := serve(ctx, subscriber)
	if err != nil {
		return err
	}
	return sender{w: w, db: db, url: "http://" + address + path}.play(ctx)
}

// openDatabase opens SQLite as an inbox wants it: see the example quickstart.
func openDatabase(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(`CREATE TABLE balance (amount INTEGER NOT NULL); INSERT INTO balance VALUES (0)`)
	return db, err
}

// newService is what a service of your own needs.
func newService(db *sql.DB) (*wmhttp.Subscriber, *message.Router, error) {
	payments, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{
		Schema:               sqlite.Schema{},
		Consumer:             "payments",
		AutoInitializeSchema: true, // in production the DDL belongs into your migrations
	}, logger)
	if err != nil {
		return nil, nil, err
	}
	subscriber, err := wmhttp.NewSubscriber("127.0.0.1:0", wmhttp.SubscriberConfig{
		// Set Router here to a chi.Router whose middleware verifies the signature: before the inbox, so that nobody else can take an id.
		UnmarshalMessageFunc: inboxhttp.Config{
			IDHeader: "Webhook-Id", // Standard Webhooks
			Keep:     inboxhttp.Only("Webhook-Id", "Webhook-Timestamp"),
		}.Unmarshal,
	}, logger)
	if err != nil {
		return nil, nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return nil, nil, err
	}
	// No Retry: the sender repeats, and meanwhile its connection waits. No poison queue: the sender is told what is wrong.
	router.AddMiddleware(inboxhttp.Answer, middleware.Recoverer, payments.Middleware)
	router.AddConsumerHandler("payments", path, subscriber, func(msg *message.Message) error {
		tx, _ := inbox.StdTxFromContext(msg.Context())
		return receivePayment(msg, tx)
	})
	return subscriber, router, nil
}

// receivePayment is the business. It only has to use tx for all it writes and to return every error.
func receivePayment(msg *message.Message, tx *sql.Tx) error {
	var payment struct{ Amount int }
	if err := json.Unmarshal(msg.Payload, &payment); err != nil {
		return err
	}
	_, err := tx.ExecContext(msg.Context(), `UPDATE balance SET amount = amount + ?`, payment.Amount)
	return err
}

// serve starts the server. The Router must run: its handlers are the routes.
func serve(ctx context.Context, subscriber *wmhttp.Subscriber) (address string, err error) {
	ended := make(chan error, 1)
	go func() { ended <- subscriber.StartHTTPServer() }()
	for subscriber.Addr() == nil { // there is no signal
		select {
		case <-time.After(time.Millisecond):
		case err := <-ended:
			return "", err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return subscriber.Addr().String(), nil
}
