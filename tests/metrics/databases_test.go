package metrics

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/mysql"
	"github.com/watermill-inbox/inbox/postgres"
	"github.com/watermill-inbox/inbox/sqlite"
)

// database is an empty database of one test.
type database struct {
	schema inbox.Schema
	db     *sql.DB // of the test
	pool   wsql.Beginner
	close  func() // closes the pool
	uuid   string // an expression for a new id

	// reads are queries that a session runs one after the other, of which the last tells how many rows, or entries of an index, of the queue it has read. Nil: the
	// engine does not tell.
	reads []string
}

var (
	readsOfPostgres = []string{
		"SELECT pg_stat_force_next_flush()",
		`SELECT (SELECT SUM(seq_tup_read) FROM pg_stat_user_tables WHERE relname = 'inbox_pending') +
			(SELECT SUM(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'inbox_pending')`,
	}
	readsOfMySQL   = []string{"SELECT SUM(VARIABLE_VALUE) FROM performance_schema.session_status WHERE VARIABLE_NAME LIKE 'Handler_read%'"}
	readsOfMariaDB = []string{"SELECT SUM(VARIABLE_VALUE) FROM information_schema.SESSION_STATUS WHERE VARIABLE_NAME LIKE 'Handler_read%'"}
)

var databases = []struct {
	name string
	open func(t testing.TB) *database
}{
	{"postgres-pgx", openPgx},
	{"postgres-std", func(t testing.TB) *database {
		return openStd(t, "pgx", createPostgres(t), postgres.Schema{}, "gen_random_uuid()::text::bytea", readsOfPostgres)
	}},
	{"mysql", openMySQL("INBOX_TEST_MYSQL", "root@tcp(127.0.0.1:3307)/test", readsOfMySQL)},
	{"mariadb", openMySQL("INBOX_TEST_MARIADB", "root@tcp(127.0.0.1:3306)/test", readsOfMariaDB)},
	{"sqlite", func(t testing.TB) *database {
		dsn := "file:" + filepath.Join(t.TempDir(), "inbox.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_pragma=synchronous(NORMAL)&_txlock=immediate"
		return openStd(t, "sqlite", dsn, sqlite.Schema{}, "CAST(hex(randomblob(16)) AS BLOB)", nil)
	}},
}

func openStd(t testing.TB, driver, dsn string, schema inbox.Schema, uuid string, reads []string) *database {
	t.Helper()
	open := func() *sql.DB {
		db, err := sql.Open(driver, dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	pool := open()
	pool.SetMaxOpenConns(8)
	pool.SetMaxIdleConns(8)
	return &database{schema, open(), wsql.BeginnerFromStdSQL(pool), func() { _ = pool.Close() }, uuid, reads}
}

func openPgx(t testing.TB) *database {
	t.Helper()
	dsn := createPostgres(t)
	d := openStd(t, "pgx", dsn, postgres.Schema{}, "gen_random_uuid()::text::bytea", readsOfPostgres)
	pool, err := pgxpool.New(context.Background(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	d.pool, d.close = wsql.BeginnerFromPgx(pool), pool.Close
	return d
}

func openMySQL(variable, fallback string, reads []string) func(t testing.TB) *database {
	return func(t testing.TB) *database {
		t.Helper()
		server := inboxtest.Server(t, variable, fallback, ping("mysql"))
		config, err := driver.ParseDSN(server)
		require.NoError(t, err)
		config.DBName = create(t, "mysql", server, "")
		return openStd(t, "mysql", config.FormatDSN(), mysql.Schema{}, "UUID()", reads)
	}
}

func createPostgres(t testing.TB) string {
	t.Helper()
	server := inboxtest.Server(t, "INBOX_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable", ping("pgx"))
	address, err := url.Parse(server)
	require.NoError(t, err)
	address.Path = "/" + create(t, "pgx", server, " WITH (FORCE)")
	return address.String()
}

// create makes a database that is dropped at the end of the test.
func create(t testing.TB, driver, server, force string) string {
	t.Helper()
	name := fmt.Sprintf("inbox_metrics_%x", rand.Uint64())
	admin, err := sql.Open(driver, server)
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	_, err = admin.Exec("CREATE DATABASE " + name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec("DROP DATABASE " + name + force)
		require.NoError(t, err)
	})
	return name
}

// ping is for inboxtest.Server.
func ping(driver string) func(dsn string) error {
	return func(dsn string) error {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return db.PingContext(ctx)
	}
}

func (d *database) exec(t testing.TB, statement string) {
	t.Helper()
	_, err := d.db.Exec(statement)
	require.NoError(t, err, statement)
}

func (d *database) number(t testing.TB, query string) (n int) {
	t.Helper()
	require.NoError(t, d.db.QueryRow(query).Scan(&n), query)
	return n
}

// full tells that a long run is wanted.
func full() bool { return os.Getenv("INBOX_TEST_SOAK") == "full" }
