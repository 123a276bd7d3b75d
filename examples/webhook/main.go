// Command webhook receives webhooks, stores them, answers, and processes them later, with nothing to install: SQLite is the database. It sends itself
// requests, true ones, repeated ones and forged ones.
//
//	go run ./examples/webhook
//
// This file is the service, signature.go and endpoint.go are what stands before the inbox, story.go plays sender and operator.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/sqlite"
)

const (
	path  = "/webhooks/payments"
	topic = "payments"

	// consumer is the scope of the identities: the same for Receiver, Subscriber and Inbox.
	consumer = "payments"

	// demoSecret is the one in the tests of Standard Webhooks. Yours is secret.
	demoSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// logger is silent to keep the output readable. Put watermill.NewStdLogger(true, false) here to watch Watermill at work.
var logger watermill.LoggerAdapter = watermill.NopLogger{}

func main() {
	if err := runInTemp(); err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}

func runInTemp() (err error) {
	dir, err := os.MkdirTemp("", "webhook")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return run(context.Background(), os.Stdout, filepath.Join(dir, "payments.db"))
}

// openDatabase opens SQLite as an inbox wants it: see the example quickstart.
func openDatabase(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	_, err = db.Exec(`CREATE TABLE accounts (owner TEXT PRIMARY KEY, balance INTEGER NOT NULL); INSERT INTO accounts VALUES ('alice', 0), ('bob', 0)`)
	return db, err
}

// service is what a service of your own needs. Endpoint and router may also be two processes with one database.
type service struct {
	endpoint http.Handler
	router   *message.Router
	queue    *deferred.Store // the operator's view
}

func newService(db *sql.DB) (*service, error) {
	key, err := parseSecret(demoSecret)
	if err != nil {
		return nil, err
	}
	pool := wsql.BeginnerFromStdSQL(db)
	wakeup := &deferred.Wakeup{} // endpoint and router are in one process: no need to wait for the next poll

	receiver, err := deferred.NewReceiver(pool, deferred.ReceiverConfig{
		Schema:               sqlite.Schema{},
		Consumer:             consumer,
		Wakeup:               wakeup,
		AutoInitializeSchema: true, // in production the DDL belongs into your migrations
	}, logger)
	if err != nil {
		return nil, err
	}
	queue, err := deferred.NewStore(pool, sqlite.Schema{}, deferred.Pending, logger)
	if err != nil {
		return nil, err
	}
	router, err := newRouter(pool, wakeup)
	if err != nil {
		return nil, err
	}
	return &service{endpoint{key, receiver, topic, logger}, router, queue}, nil
}

func newRouter(pool wsql.Beginner, wakeup *deferred.Wakeup) (*message.Router, error) {
	subscriber, err := deferred.NewSubscriber(pool, deferred.SubscriberConfig{
		Schema:   sqlite.Schema{},
		Consumer: consumer,
		Wakeup:   wakeup,
		// So that the story is short. The defaults give up after 20 attempts in about an hour.
		MaxAttempts:    3,
		InitialBackoff: 10 * time.Millisecond,
		MaxBackoff:     50 * time.Millisecond,
		PollInterval:   50 * time.Millisecond,
	}, logger)
	if err != nil {
		return nil, err
	}
	payments, err := inbox.New(pool, inbox.Config{
		Schema:               sqlite.Schema{},
		Consumer:             consumer,
		AutoInitializeSchema: true,
	}, logger)
	if err != nil {
		return nil, err
	}
	// Longer than the Subscriber's CloseTimeout (20 s) and the inbox's TxTimeout (25 s).
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, logger)
	if err != nil {
		return nil, err
	}
	// No Retry and no poison queue: the queue tries again with a backoff, and a message that always fails is dead in it.
	handler := router.AddConsumerHandler("book-payment", topic, subscriber, inbox.ConsumeStdTx(bookPayment))
	handler.AddMiddleware(middleware.Recoverer, payments.Middleware)
	return router, nil
}

// bookPayment is the business. It knows nothing of repetitions; it only has to use tx for all it writes and to return every error.
func bookPayment(msg *message.Message, tx *sql.Tx) error {
	var payment struct {
		To     string
		Amount int
	}
	if err := json.Unmarshal(msg.Payload, &payment); err != nil {
		return err
	}
	result, err := tx.ExecContext(msg.Context(), `UPDATE accounts SET balance = balance + ? WHERE owner = ?`, payment.Amount, payment.To)
	if err != nil {
		return err
	}
	if booked, err := result.RowsAffected(); err != nil || booked == 0 {
		return errors.Join(fmt.Errorf("%s has no account", payment.To), err)
	}
	return nil
}

// serve starts the HTTP server. At the end stop it before the router and the database.
func serve(handler http.Handler) (url string, stop func() error, err error) {
	mux := http.NewServeMux()
	mux.Handle("POST "+path, handler)
	server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second} // the answer may wait for the database
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	stop = func() error {
		err := server.Shutdown(context.Background())
		if ended := <-ended; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
		return err
	}
	return "http://" + listener.Addr().String() + path, stop, nil
}
