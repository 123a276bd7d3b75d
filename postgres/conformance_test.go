package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/postgres"
)

func TestConformance(t *testing.T) {
	t.Run("pgx", func(t *testing.T) { inboxtest.TestSchema(t, database(openPgx, true)) })
	t.Run("database-sql-pgx", func(t *testing.T) { inboxtest.TestSchema(t, database(openStd("pgx"), false)) })
	t.Run("database-sql-pq", func(t *testing.T) { inboxtest.TestSchema(t, database(openStd("postgres"), false)) })

	// Without named prepared statements, as behind PgBouncer.
	t.Run("pgx-describe-exec", func(t *testing.T) {
		inboxtest.TestSchema(t, variant(openPgx, true, "default_query_exec_mode", "describe_exec"))
	})
	t.Run("database-sql-pq-binary", func(t *testing.T) {
		inboxtest.TestSchema(t, variant(openStd("postgres"), false, "binary_parameters", "yes", "standard_conforming_strings", "off"))
	})
}

func TestDeferred(t *testing.T) {
	t.Run("pgx", func(t *testing.T) { inboxtest.TestDeferred(t, database(openPgx, true)) })
	t.Run("database-sql-pgx", func(t *testing.T) { inboxtest.TestDeferred(t, database(openStd("pgx"), false)) })
	t.Run("database-sql-pq", func(t *testing.T) { inboxtest.TestDeferred(t, database(openStd("postgres"), false)) })

	// Without named prepared statements, as behind PgBouncer.
	t.Run("pgx-describe-exec", func(t *testing.T) {
		inboxtest.TestDeferred(t, variant(openPgx, true, "default_query_exec_mode", "describe_exec"))
	})
	t.Run("database-sql-pq-binary", func(t *testing.T) {
		inboxtest.TestDeferred(t, variant(openStd("postgres"), false, "binary_parameters", "yes", "standard_conforming_strings", "off"))
	})
}

type openFunc func(t *testing.T, dsn string, connections int) inboxtest.Pool

// database makes databases that are schemas of one database of the server.
func database(open openFunc, native bool) inboxtest.Database {
	return inboxtest.Database{
		Schema:      func(table string) inbox.Schema { return postgres.Schema{MessagesTable: table} },
		Outbox:      wsql.DefaultPostgreSQLSchema{},
		New:         func(t *testing.T) inboxtest.Instance { return newInstance(t, open) },
		Placeholder: func(n int) string { return "$" + strconv.Itoa(n) },
		Features: inboxtest.Features{
			ConcurrentWriters:    true,
			NoWait:               true,
			Isolations:           []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable},
			SwallowedErrorAborts: true,
			Native:               native,
			SlowInsert:           "INSERT INTO biz (who, step) SELECT 'slow', 0 FROM pg_sleep(10)",
		},
		Mistakes: []inboxtest.Mistake{
			{Name: "text", Statements: []string{"ALTER TABLE inbox_messages ALTER message_id TYPE text USING message_id::text"}, Want: []string{"message_id", "text", "bytea"}},
			{Name: "deferrable", Statements: []string{
				"ALTER TABLE inbox_messages DROP CONSTRAINT inbox_messages_pkey",
				"ALTER TABLE inbox_messages ADD PRIMARY KEY (consumer, producer, message_id) DEFERRABLE",
			}, Want: []string{"primary key", "missing"}},
			{Name: "unlogged", Statements: []string{"ALTER TABLE inbox_messages SET UNLOGGED"}, Want: []string{"persistence", "unlogged"}},
		},
	}
}

// variant makes databases that differ in parameters of the DSN only.
func variant(open openFunc, native bool, parameters ...string) inboxtest.Database {
	d := database(func(t *testing.T, dsn string, connections int) inboxtest.Pool {
		t.Helper()
		return open(t, withParameters(t, dsn, parameters...), connections)
	}, native)
	d.Variant = true
	return d
}

func newInstance(t *testing.T, open openFunc) inboxtest.Instance {
	t.Helper()
	root, server, namespace := newNamespace(t)
	return inboxtest.Instance{
		Admin:     connect(t, "pgx", withParameters(t, server, "search_path", namespace)),
		Namespace: namespace,
		Open: func(t *testing.T, options inboxtest.Options) inboxtest.Pool {
			parameters := []string{"search_path", namespace, "application_name", namespace}
			if options.LockTimeout > 0 {
				parameters = append(parameters, "lock_timeout", strconv.FormatInt(options.LockTimeout.Milliseconds(), 10))
			}
			return open(t, withParameters(t, server, parameters...), options.Connections)
		},
		Transactions: activity(root, namespace, "xact_start IS NOT NULL"),
		Waiting:      activity(root, namespace, "wait_event_type = 'Lock'"),
	}
}

// newNamespace creates an empty schema until the end of the test, and returns a pool outside of it and the DSN of that.
func newNamespace(t testing.TB) (root *sql.DB, server, namespace string) {
	t.Helper()
	server = inboxtest.Server(t, "INBOX_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable", ping)
	namespace = fmt.Sprintf("inboxtest_%x", rand.Uint64())
	root = connect(t, "pgx", server)
	exec(t, root, "CREATE SCHEMA "+namespace)
	t.Cleanup(func() { exec(t, root, "DROP SCHEMA "+namespace+" CASCADE") })
	return root, server, namespace
}

// activity counts the sessions of the pools of a namespace that are as condition says.
func activity(root *sql.DB, namespace, condition string) func(context.Context) (int, error) {
	return func(ctx context.Context) (n int, err error) {
		err = root.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND "+condition, namespace).Scan(&n)
		return n, err
	}
}

func withParameters(t testing.TB, dsn string, parameters ...string) string {
	t.Helper()
	address, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	query := address.Query()
	for n := 0; n < len(parameters); n += 2 {
		query.Set(parameters[n], parameters[n+1])
	}
	address.RawQuery = query.Encode()
	return address.String()
}

func openPgx(t *testing.T, dsn string, connections int) inboxtest.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = int32(connections)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	return inboxtest.Pool{
		DB:    wsql.BeginnerFromPgx(pool),
		InUse: func() int { return int(pool.Stat().AcquiredConns()) },
		Close: pool.Close,
	}
}

func openStd(driver string) openFunc {
	return func(t *testing.T, dsn string, connections int) inboxtest.Pool {
		t.Helper()
		db, err := sql.Open(driver, dsn)
		if err != nil {
			t.Fatal(err)
		}
		db.SetMaxOpenConns(connections)
		return inboxtest.StdPool(db)
	}
}

// connect opens a small pool that is closed at the end of the test.
func connect(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(3)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func exec(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func ping(dsn string) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return db.PingContext(ctx)
}
