package inboxtest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
)

// Database is a dialect with one driver and one way to open databases. Schema, Outbox and New are required.
type Database struct {
	// Schema returns the dialect with the given table of identities; empty means the dialect's default.
	Schema func(table string) inbox.Schema

	// Outbox is a schema of watermill-sql that works on the engine.
	Outbox OutboxSchema

	// New makes an empty database for one test. It registers the removal with t.Cleanup.
	New func(t *testing.T) Instance

	// Placeholder returns the mark of the n-th parameter of a statement, counted from 1. Default: "?".
	Placeholder func(n int) string

	// Features are what the engine and the driver can do.
	Features Features

	// Mistakes are tables that Inbox.Verify must refuse, besides those that any SQL can make.
	Mistakes []Mistake

	// Variant tells that the whole suite runs elsewhere and only the DSN differs here: just the cases whose outcome a DSN
	// can change run.
	Variant bool
}

// OutboxSchema is what the schemas of watermill-sql have in common.
type OutboxSchema interface {
	wsql.SchemaAdapter

	// MessagesTable returns the quoted name of the table of a topic.
	MessagesTable(topic string) string
}

// Instance is one database of one test.
type Instance struct {
	// Admin is a pool for the test's own statements: tables, counts, locks. The one who opened it closes it.
	Admin *sql.DB

	// Namespace is the name of the database or schema, with which a table's name can be qualified.
	Namespace string

	// Open opens a pool as one more process of the service would.
	Open func(t *testing.T, options Options) Pool

	// Transactions counts the transactions that the pools have open. Nil where the engine does not tell.
	Transactions func(ctx context.Context) (open int, err error)

	// Waiting counts the statements of the pools that wait for a lock. Nil where the engine does not tell.
	Waiting func(ctx context.Context) (waiting int, err error)
}

// Options are how to open a pool.
type Options struct {
	// Connections is the most that the pool may open.
	Connections int

	// LockTimeout is after how long the engine ends a statement's wait for a lock, rounded up to what it can. Zero: the
	// engine's default.
	LockTimeout time.Duration
}

// Pool is an open pool.
type Pool struct {
	// DB is what the inbox is made with.
	DB wsql.Beginner

	// InUse counts the connections that are not idle.
	InUse func() int

	// Close closes the pool. The suite calls it.
	Close func()
}

// StdPool is a Pool of database/sql.
func StdPool(db *sql.DB) Pool {
	return Pool{
		DB:    wsql.BeginnerFromStdSQL(db),
		InUse: func() int { return db.Stats().InUse },
		Close: func() { _ = db.Close() },
	}
}

// Features are the abilities and habits of an engine and its driver that change what the inbox can promise. The zero value is an engine
// with one writer at a time that has only the levels of isolation it has by default.
type Features struct {
	// ConcurrentWriters: two transactions can write different rows at the same time.
	ConcurrentWriters bool

	// NoWait: the dialect can tell at once that another transaction holds an identity. Without it, Config.NoWait must be refused.
	NoWait bool

	// Isolations are the levels that the suite tries besides the default.
	Isolations []sql.IsolationLevel

	// SwallowedErrorAborts: after a failed statement the transaction takes no other one, and COMMIT rolls back.
	SwallowedErrorAborts bool

	// EngineEndsTransactionOnDeadlock: the engine rolls back the victim's whole transaction, and the statements that follow are committed one
	// by one unless autocommit is off.
	EngineEndsTransactionOnDeadlock bool

	// AutocommitOff: the DSN turns autocommit off.
	AutocommitOff bool

	// DDLCommits: a DDL statement commits the transaction it stands in.
	DDLCommits bool

	// Native: the pool is pgx's own, not database/sql's.
	Native bool

	// SlowInsert is a statement that writes into the suite's table biz (who, step) for seconds unless it is interrupted. Empty:
	// there is none.
	SlowInsert string
}

// Mistake is a table of identities made wrong.
type Mistake struct {
	// Name of the test.
	Name string

	// Statements spoil the table that the dialect's DDL has created under its default name.
	Statements []string

	// Want are words that the error must have in it.
	Want []string
}
