// Package databases makes empty databases for tests, one for each driver of the servers that run.
package databases

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
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

// Database is a database with a driver.
type Database struct {
	Schema inbox.Schema
	Driver string // of database/sql, for the test's own statements

	// Create makes an empty database for one test and returns the DSN to reach it.
	Create func(t testing.TB) (dsn string)

	// Open makes a pool.
	Open func(dsn string, connections int) (pool wsql.Beginner, closePool func(), err error)
}

// All are the databases that every machine can test with.
var All = map[string]Database{
	"postgres-pgx": {postgres.Schema{}, "pgx", createPostgres, OpenPgx},
	"postgres-std": {postgres.Schema{}, "pgx", createPostgres, OpenStd("pgx")},
	"mysql":        {mysql.Schema{}, "mysql", createMySQL("INBOX_TEST_MYSQL", "root@tcp(127.0.0.1:3307)/test"), OpenStd("mysql")},
	"mariadb":      {mysql.Schema{}, "mysql", createMySQL("INBOX_TEST_MARIADB", "root@tcp(127.0.0.1:3306)/test"), OpenStd("mysql")},
	"sqlite":       {sqlite.Schema{}, "sqlite", createSQLite, OpenStd("sqlite")},
}

// OpenPgx makes a pool of pgx.
func OpenPgx(dsn string, connections int) (wsql.Beginner, func(), error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = int32(connections)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, nil, err
	}
	return wsql.BeginnerFromPgx(pool), pool.Close, nil
}

// OpenStd makes a pool of database/sql.
func OpenStd(driver string) func(string, int) (wsql.Beginner, func(), error) {
	return func(dsn string, connections int) (wsql.Beginner, func(), error) {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return nil, nil, err
		}
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		return wsql.BeginnerFromStdSQL(db), func() { _ = db.Close() }, nil
	}
}

func newName() string { return fmt.Sprintf("inbox_tests_%x", rand.Uint64()) }

func createPostgres(t testing.TB) string {
	t.Helper()
	server := inboxtest.Server(t, "INBOX_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable", Ping("pgx"))
	name := newName()
	createAndDrop(t, "pgx", server, "CREATE DATABASE "+name, "DROP DATABASE "+name+" WITH (FORCE)")
	address, err := url.Parse(server)
	require.NoError(t, err)
	address.Path = "/" + name
	return address.String()
}

func createMySQL(variable, fallback string) func(testing.TB) string {
	return func(t testing.TB) string {
		t.Helper()
		server := inboxtest.Server(t, variable, fallback, Ping("mysql"))
		name := newName()
		createAndDrop(t, "mysql", server, "CREATE DATABASE "+name, "DROP DATABASE "+name)
		config, err := driver.ParseDSN(server)
		require.NoError(t, err)
		config.DBName = name
		config.ReadTimeout = 10 * time.Second
		return config.FormatDSN()
	}
}

func createSQLite(t testing.TB) string {
	return "file:" + filepath.Join(t.TempDir(), "inbox.db") +
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(10000)&_pragma=synchronous(NORMAL)&_txlock=immediate"
}

func createAndDrop(t testing.TB, driver, server, create, drop string) {
	t.Helper()
	admin, err := sql.Open(driver, server)
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })
	_, err = admin.Exec(create)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(drop)
		require.NoError(t, err)
	})
}

// Ping is for inboxtest.Server.
func Ping(driver string) func(dsn string) error {
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
