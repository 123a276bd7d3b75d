package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// outgoing is the topic of the suite's outbox.
const outgoing = "outgoing"

// patience bounds every wait for something that must happen. It is long because race detector and busy machines are slow.
const patience = 20 * time.Second

// fixture is one test's database, with the tables that most tests need:
//
//	biz     (who, step)   what handlers write
//	counter (id, n)       one row, (1, 0)
//	the table of identities and the outbox of topic outgoing
type fixture struct {
	t        *testing.T
	database Database
	instance Instance
}

func newFixture(t *testing.T, database Database, empty bool) *fixture {
	t.Helper()
	if database.Placeholder == nil {
		database.Placeholder = func(int) string { return "?" }
	}
	f := &fixture{t: t, database: database, instance: database.New(t)}
	f.createBusinessTables(t)
	if !empty {
		if err := f.newInbox(t, f.pool(t, 1), inbox.Config{}).InitializeSchema(context.Background()); err != nil {
			t.Fatal(err)
		}
		f.createOutbox(t)
	}
	return f
}

// features are short for what the engine can do.
func (f *fixture) features() Features { return f.database.Features }

func (f *fixture) createBusinessTables(t *testing.T) {
	t.Helper()
	f.exec(t, "CREATE TABLE biz (who VARCHAR(255) NOT NULL, step INTEGER NOT NULL)")
	f.exec(t, "CREATE TABLE counter (id INTEGER NOT NULL PRIMARY KEY, n INTEGER NOT NULL)")
	f.exec(t, "INSERT INTO counter (id, n) VALUES (1, 0)")
}

func (f *fixture) createOutbox(t testing.TB) {
	t.Helper()
	queries, err := f.database.Outbox.SchemaInitializingQueries(wsql.SchemaInitializingQueriesParams{Topic: outgoing})
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range queries {
		f.exec(t, query.Query, query.Args...)
	}
}

// exec runs one of the test's own statements, outside every transaction.
func (f *fixture) exec(t testing.TB, query string, args ...any) {
	t.Helper()
	if err := f.tryExec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func (f *fixture) tryExec(query string, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// In a transaction, because the DSN may turn autocommit off.
	tx, err := f.instance.Admin.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// pool opens a pool. At the end of the test no connection of it may be in use and no transaction open.
func (f *fixture) pool(t *testing.T, connections int) Pool {
	t.Helper()
	return f.open(t, Options{Connections: connections})
}

func (f *fixture) open(t *testing.T, options Options) Pool {
	t.Helper()
	pool := f.instance.Open(t, options)
	t.Cleanup(func() {
		f.wantIdle(t, pool)
		pool.Close()
	})
	return pool
}

// newInbox makes an inbox on the pool. Where config does not say otherwise, its consumer is "billing" and it has an outbox.
func (f *fixture) newInbox(t *testing.T, pool Pool, config inbox.Config) *inbox.Inbox {
	t.Helper()
	box, err := f.tryNewInbox(pool, config)
	if err != nil {
		t.Fatalf("inbox.New: %v", err)
	}
	return box
}

func (f *fixture) tryNewInbox(pool Pool, config inbox.Config) (*inbox.Inbox, error) {
	return inbox.New(pool.DB, f.withDefaults(config), watermill.NopLogger{})
}

func (f *fixture) withDefaults(config inbox.Config) inbox.Config {
	if config.Schema == nil {
		config.Schema = f.database.Schema("")
	}
	if config.Consumer == "" && config.ConsumerPrefix == "" {
		config.Consumer = "billing"
	}
	if config.Outbox == nil {
		config.Outbox = inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: f.database.Outbox}, watermill.NopLogger{})
	}
	return config
}

// write inserts a row into biz in the transaction of the message being handled.
func (f *fixture) write(ctx context.Context, who string, step int) error {
	return f.execInTx(ctx, f.insertBiz(), who, step)
}

// insertBiz is a statement with two parameters, which most drivers prepare.
func (f *fixture) insertBiz() string {
	return fmt.Sprintf("INSERT INTO biz (who, step) VALUES (%s, %s)", f.database.Placeholder(1), f.database.Placeholder(2))
}

// execInTx runs a statement in the transaction of the message being handled.
func (f *fixture) execInTx(ctx context.Context, query string, args ...any) error {
	tx, ok := inbox.TxFromContext(ctx)
	if !ok {
		return errors.New("inboxtest: no transaction in the handler's context")
	}
	_, err := tx.ExecContext(ctx, query, args...)
	return err
}

// writes is a handler that inserts one row named after the message.
func (f *fixture) writes(msg *message.Message) ([]*message.Message, error) {
	return nil, f.write(msg.Context(), msg.UUID, 1)
}
