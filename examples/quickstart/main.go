// Command quickstart plays the story for which an inbox exists, in one process and without anything to install: SQLite is the
// database, GoChannel the broker.
//
//	go run ./examples/quickstart
//
// This file is what a service of your own needs. The rest makes things go wrong and shows what happened.
package main

import (
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/sqlite"
)

const (
	requestedTopic = "reports.requested" // what report-worker receives
	createdTopic   = "reports.created"   // what it announces
	outboxTopic    = "outbox"            // where announcements wait for the relay, in the table watermill_outbox
)

// logger is silent to keep the story readable. Put watermill.NewStdLogger(true, false) here to watch Watermill at work.
var logger watermill.LoggerAdapter = watermill.NopLogger{}

func main() {
	path := flag.String("db", "", "`file` of the database, to be created and kept (default: a temporary one)")
	flag.Parse()

	if err := run(os.Stdout, *path); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// openDatabase opens SQLite as an inbox wants it. Writers wait for each other (busy_timeout) instead of failing, and readers
// do not disturb them (WAL). Transactions begin as writers (_txlock), so they never have to become one halfway.
func openDatabase(path string) (*sql.DB, error) {
	return sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
}

// inboxConfig protects the consumer report-worker.
func inboxConfig() inbox.Config {
	return inbox.Config{
		Schema: sqlite.Schema{},

		// The logical consumer, never a host or a process: all instances of the service share it.
		Consumer: "report-worker",

		// What the handler returns is stored in the transaction of its effect, and reaches the broker through the relay.
		Outbox: inbox.ForwarderOutbox(
			wsql.PublisherConfig{SchemaAdapter: sqlite.OutboxSchema{}},
			forwarder.PublisherConfig{ForwarderTopic: outboxTopic},
			logger,
		),

		// Good for a start. In production the DDL of the dialect belongs into your migrations.
		AutoInitializeSchema: true,
	}
}

// newRouter connects the inbox with a handler.
func newRouter(reports *inbox.Inbox, requests message.Subscriber, handler txHandler) (*message.Router, error) {
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return nil, err
	}
	// The inbox opens the transaction, and nothing commits before it: Retry and PoisonQueue belong before it in this list.
	router.AddMiddleware(reports.Middleware)
	router.AddHandler(
		"report-worker",
		requestedTopic, requests,
		// Messages go to the outbox. This publisher refuses those that would go past it, if the middleware were missing.
		createdTopic, reports.Publisher(),
		inbox.HandleStdTx(handler),
	)
	return router, nil
}

// txHandler is a handler that gets the transaction of its message.
type txHandler = func(msg *message.Message, tx *sql.Tx) ([]*message.Message, error)

// createReport is the business: it counts a report and announces it. There is no trace of deduplication in it. It only has to use
// tx for all it writes and to return every error.
func createReport(msg *message.Message, tx *sql.Tx) ([]*message.Message, error) {
	var number int
	row := tx.QueryRowContext(msg.Context(), `UPDATE reports SET counter = counter + 1 RETURNING counter`)
	if err := row.Scan(&number); err != nil {
		return nil, err
	}

	payload, err := json.Marshal(map[string]any{"report": number, "request": msg.UUID})
	if err != nil {
		return nil, err
	}
	return []*message.Message{message.NewMessage(watermill.NewUUID(), payload)}, nil
}

// newRelay carries the messages of the outbox to the broker. Here it starts after the report-worker is done, in a service both run
// all the time. It delivers at least once: whoever listens to its messages has an inbox, too.
func newRelay(db *sql.DB, broker message.Publisher) (*forwarder.Forwarder, error) {
	outbox, err := wsql.NewSubscriber(wsql.BeginnerFromStdSQL(db), wsql.SubscriberConfig{
		SchemaAdapter:  sqlite.OutboxSchema{},
		OffsetsAdapter: sqlite.OutboxOffsetsAdapter{},
		PollInterval:   50 * time.Millisecond,
	}, logger)
	if err != nil {
		return nil, err
	}
	// The tables must be there before the first message is handled: none are created in its transaction.
	if err := outbox.SubscribeInitialize(outboxTopic); err != nil {
		return nil, err
	}
	return forwarder.NewForwarder(outbox, broker, logger, forwarder.Config{ForwarderTopic: outboxTopic})
}
