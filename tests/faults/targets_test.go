package faults

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	sqlitedriver "modernc.org/sqlite"

	"github.com/watermill-inbox/inbox"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/mysql"
	"github.com/watermill-inbox/inbox/postgres"
	"github.com/watermill-inbox/inbox/sqlite"
)

// target is a database with a driver.
type target struct {
	name   string
	engine engine
	schema inbox.Schema
	outbox outboxSchema

	// variable and fallback are where the server answers.
	variable, fallback string

	// driver is that of database/sql; for pgx's own pool, that of the test's statements.
	driver string
	native bool

	effect   string // the handler's second statement, with its parameter
	identity string // the identity's column compared with hexadecimal digits

	// openTx and sessions count on the server what other connections have open in the database. openTx may also fail if there is any.
	openTx, sessions string

	// deaf: a wait for an answer ends with the connection only, whatever the context says.
	deaf bool

	// patient: nothing but the end of the connection ends a COMMIT that gets no answer, so while that lasts, what the
	// transaction holds stays locked.
	patient bool
}

type engine int

const (
	isPostgres engine = iota
	isMySQL
	isSQLite
)

// outboxSchema is what the schemas for watermill-sql have in common.
type outboxSchema interface {
	wsql.SchemaAdapter
	MessagesTable(topic string) string
}

var targets = []target{
	postgresTarget("postgres-pgx", "pgx", func(t *target) { t.native = true }),
	postgresTarget("postgres-stdlib", "pgx", func(*target) {}),
	postgresTarget("postgres-pq", "postgres", func(t *target) { t.deaf, t.patient = true, true }),
	mysqlTarget("mysql", "INBOX_TEST_MYSQL", "root@tcp(127.0.0.1:3307)/test"),
	mysqlTarget("mariadb", "INBOX_TEST_MARIADB", "root@tcp(127.0.0.1:3306)/test"),
	{
		name:     "sqlite",
		engine:   isSQLite,
		schema:   sqlite.Schema{},
		outbox:   sqlite.OutboxSchema{},
		driver:   "sqlite",
		effect:   "INSERT INTO biz (id, part) VALUES (?, 2) " + Mark(2),
		identity: "message_id = x'%x'",
		patient:  true,
	},
}

func postgresTarget(name, driver string, set func(*target)) target {
	const others = "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
	t := target{
		name:     name,
		engine:   isPostgres,
		schema:   postgres.Schema{},
		outbox:   wsql.PostgreSQLQueueSchema{},
		variable: "INBOX_TEST_POSTGRES",
		fallback: "postgres://postgres@127.0.0.1:5432/test?sslmode=disable",
		driver:   driver,
		effect:   "INSERT INTO biz (id, part) VALUES ($1, 2) " + Mark(2),
		identity: `message_id = '\x%x'`,
		openTx:   others + " AND xact_start IS NOT NULL",
		sessions: others,
	}
	set(&t)
	return t
}

func mysqlTarget(name, variable, fallback string) target {
	return target{
		name:     name,
		engine:   isMySQL,
		schema:   mysql.Schema{},
		outbox:   wsql.MySQLQueueSchema{},
		variable: variable,
		fallback: fallback,
		driver:   "mysql",
		effect:   "INSERT INTO biz (id, part) VALUES (?, 2) " + Mark(2),
		identity: "message_id = X'%x'",
		// A transaction has its identity locked. information_schema.innodb_trx is no use here: it is not refreshed while it is polled.
		openTx:   "SELECT 0 * COUNT(*) FROM inbox_messages FOR UPDATE NOWAIT",
		sessions: "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
	}
}

func targetNamed(name string) (target, error) {
	for _, target := range targets {
		if target.name == name {
			return target, nil
		}
	}
	return target{}, fmt.Errorf("no target %q", name)
}

// outgoing is the topic of the messages that the handler produces.
const outgoing = "outgoing"

func (t target) statements() Statements {
	return Statements{Inbox: inbox.DefaultMessagesTable, Outbox: "watermill_" + outgoing}
}

// createTables returns what makes the tables besides the inbox's own. They have no unique keys: the inbox alone must prevent a
// second row.
func (t target) createTables() ([]string, error) {
	statements := []string{"CREATE TABLE biz (id VARCHAR(64) NOT NULL, part INT NOT NULL)"}
	queries, err := t.outbox.SchemaInitializingQueries(wsql.SchemaInitializingQueriesParams{Topic: outgoing})
	for _, query := range queries {
		statements = append(statements, query.Query)
	}
	return statements, err
}

// pool is one process's connections.
type pool struct {
	db      wsql.Beginner
	inUse   func() int
	release func() // of what is held in the driver
	close   func()
}

const connections = 4

// open opens a pool. The hook is for the engine that has no proxy.
func (t target) open(dsn string, hook Hook) (pool, error) {
	if t.native {
		return openNative(dsn)
	}
	p := pool{release: func() {}}
	var db *sql.DB
	if t.engine == isSQLite {
		driver := WrapDriver(&sqlitedriver.Driver{}, dsn, t.statements(), hook)
		db, p.release = sql.OpenDB(driver), driver.Release
	} else {
		var err error
		if db, err = sql.Open(t.driver, dsn); err != nil {
			return pool{}, err
		}
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	p.db = wsql.BeginnerFromStdSQL(db)
	p.inUse = func() int { return db.Stats().InUse }
	p.close = func() { _ = db.Close() }
	return p, nil
}

func openNative(dsn string) (pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return pool{}, err
	}
	config.MaxConns = connections
	db, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return pool{}, err
	}
	return pool{
		db:      wsql.BeginnerFromPgx(db),
		inUse:   func() int { return int(db.Stat().AcquiredConns()) },
		release: func() {},
		close:   db.Close,
	}, nil
}

// readTimeout is in the DSN for MySQL, as package mysql recommends: without it a COMMIT without an answer keeps its connection, and so the
// lock on its identity, until the server ends it.
const readTimeout = 2 * time.Second
