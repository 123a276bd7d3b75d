package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/retention"
)

// engine is one kind of database. A fourth is one more of these in a file of its own.
type engine struct {
	schemes []string // of its DSNs
	schema  func(names tableNames) deferred.Dialect

	// open makes a pool and tries one connection. Errors about the DSN itself are those of usage, and do not quote it. A database that does not
	// exist yet, where that is a file, is made only with create.
	open func(ctx context.Context, dsn string, create bool) (wsql.Beginner, func(), error)
}

func engines() []engine { return []engine{postgresEngine, mysqlEngine, sqliteEngine} }

// tableNames are those of flags or environment; empty: the default.
type tableNames struct{ messages, pending, outgoing string }

// database is an open one.
type database struct {
	pool   wsql.Beginner
	schema deferred.Dialect
	close  func()
}

// dialect finds what --dsn names, without a look at the database.
func (a *app) dialect() (engine, deferred.Dialect, error) {
	dsn := a.dsn()
	if dsn == "" {
		return engine{}, nil, usage("no database is named: set INBOX_DSN, or give --dsn")
	}
	scheme, _, _ := strings.Cut(dsn, ":")
	for _, e := range engines() {
		if !slices.Contains(e.schemes, scheme) || scheme == dsn {
			continue
		}
		schema := e.schema(tableNames{
			messages: a.setting(a.flags.messages, "INBOX_MESSAGES_TABLE"),
			pending:  a.setting(a.flags.pending, "INBOX_PENDING_TABLE"),
			outgoing: a.setting(a.flags.outgoing, "INBOX_OUTGOING_TABLE"),
		})
		if err := schema.Validate(); err != nil {
			return engine{}, nil, usage("%w", err)
		}
		return e, schema, nil
	}
	return engine{}, nil, usage("the DSN begins with none of postgres:, mysql:, sqlite: and file: (see inboxctl help)")
}

func (a *app) open(ctx context.Context, create bool) (*database, error) {
	e, schema, err := a.dialect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := a.step(ctx)
	defer cancel()
	pool, closePool, err := e.open(ctx, a.dsn(), create)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return &database{pool, schema, closePool}, nil
}

// with runs fn with the database.
func (a *app) with(ctx context.Context, fn func(db *database) error) error {
	db, err := a.open(ctx, false)
	if err != nil {
		return err
	}
	defer db.close()
	return fn(db)
}

func (a *app) inbox(db *database) (*inbox.Inbox, error) {
	return inbox.New(db.pool, inbox.Config{Schema: db.schema}, nil)
}

// store opens a queue whose table is as it should be.
func (a *app) store(ctx context.Context, db *database, queue deferred.Queue) (*deferred.Store, error) {
	store, err := deferred.NewStore(db.pool, db.schema, queue, nil)
	if err != nil {
		return nil, err
	}
	store = store.WithTimeout(a.flags.timeout)
	ctx, cancel := a.step(ctx)
	defer cancel()
	return store, store.Verify(ctx)
}

// identities opens the table of identities, which is as it should be.
func (a *app) identities(ctx context.Context, db *database) (*retention.Identities, error) {
	report, err := a.look(ctx, db, kindMessages)
	if err != nil {
		return nil, err
	}
	if err := report.err(); err != nil {
		return nil, err
	}
	return retention.NewIdentities(db.pool, db.schema, nil)
}

// badDSN does not say what the driver says, which may quote a part of the password.
func badDSN(form string) error {
	return usage("the DSN is not of the form %s: percent-encode special characters in the user and password of a URL (what is wrong is not shown, because it may be in the password)", form)
}
