package inboxtest

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/watermill-inbox/inbox"
)

// These are T07: DDL, which commits the transaction it stands in on MySQL.
var ddlCases = []testCase{
	{name: "T07_AutoSchemaInATransactionIsRefusedByNew", run: autoSchemaIsRefused},
	{name: "T07_NoDDLInAMessageTransaction", run: noDDLInATransaction},
}

// autoSchemaIsRefused has a publisher that is bound to the transaction and would create its table at its first message.
func autoSchemaIsRefused(t *testing.T, f *fixture) {
	config := wsql.PublisherConfig{SchemaAdapter: f.database.Outbox, AutoInitializeSchema: true}
	pool := f.pool(t, 1)
	for name, factory := range map[string]inbox.OutboxFactory{
		"SQLOutbox":       inbox.SQLOutbox(config, watermill.NopLogger{}),
		"ForwarderOutbox": inbox.ForwarderOutbox(config, forwarder.PublisherConfig{ForwarderTopic: outgoing}, watermill.NopLogger{}),
		"watermill-sql": func(tx wsql.ContextExecutor) (message.Publisher, error) {
			return wsql.NewPublisher(tx, config, watermill.NopLogger{})
		},
	} {
		box, err := f.tryNewInbox(pool, inbox.Config{Outbox: factory})
		if err == nil || box != nil {
			t.Fatalf("New accepts %s with AutoInitializeSchema", name)
		}
		wantText(t, err, "Outbox", "AutoInitializeSchema")
	}
}

var ddl = regexp.MustCompile(`(?i)\b(CREATE|ALTER|DROP|TRUNCATE|RENAME)\b`)

// noDDLInATransaction looks at every statement of an inbox after New: a message that is processed, one that repeats and one that fails.
func noDDLInATransaction(t *testing.T, f *fixture) {
	pool := f.pool(t, 4)
	db := &recordingDB{Beginner: pool.DB}
	pool.DB = db
	s := f.service(t, serviceOptions{pool: pool}, f.produces(newMessage("out")))
	for _, msg := range copies(2, "m1") {
		wantAck(t, s.deliver(t, msg))
	}
	wantNack(t, s.deliver(t, newMessageWith("m1", "other")))

	statements := db.all()
	for _, statement := range statements {
		if ddl.MatchString(statement) {
			t.Errorf("DDL in the transaction of a message: %s", statement)
		}
	}
	if !strings.Contains(strings.Join(statements, "\n"), inbox.DefaultMessagesTable) {
		t.Fatalf("the test sees no statements: %q", statements)
	}
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
}

// recordingDB keeps all statements of its transactions.
type recordingDB struct {
	wsql.Beginner
	mu         sync.Mutex
	statements []string
}

func (db *recordingDB) record(statement string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.statements = append(db.statements, statement)
}

func (db *recordingDB) all() []string {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.statements
}

// BeginTx keeps pgx's transactions recognisable.
func (db *recordingDB) BeginTx(ctx context.Context, options *sql.TxOptions) (wsql.Tx, error) {
	tx, err := db.Beginner.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	if native, ok := tx.(*wsql.PgxTx); ok {
		native.Tx = recordingPgxTx{native.Tx, db}
		return native, nil
	}
	return recordingTx{tx, db}, nil
}

type recordingTx struct {
	wsql.Tx
	db *recordingDB
}

func (tx recordingTx) ExecContext(ctx context.Context, query string, args ...any) (wsql.Result, error) {
	tx.db.record(query)
	return tx.Tx.ExecContext(ctx, query, args...)
}

func (tx recordingTx) QueryContext(ctx context.Context, query string, args ...any) (wsql.Rows, error) {
	tx.db.record(query)
	return tx.Tx.QueryContext(ctx, query, args...)
}

type recordingPgxTx struct {
	pgx.Tx
	db *recordingDB
}

func (tx recordingPgxTx) Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error) {
	tx.db.record(query)
	return tx.Tx.Exec(ctx, query, args...)
}

func (tx recordingPgxTx) Query(ctx context.Context, query string, args ...any) (pgx.Rows, error) {
	tx.db.record(query)
	return tx.Tx.Query(ctx, query, args...)
}
