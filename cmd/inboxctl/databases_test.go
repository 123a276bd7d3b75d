package main

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

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/mysql"
	"github.com/watermill-inbox/inbox/postgres"
	"github.com/watermill-inbox/inbox/sqlite"
)

// testDatabase is an empty database of one test.
type testDatabase struct {
	dsn    string // as inboxctl takes it
	admin  *sql.DB
	pool   wsql.Beginner
	schema deferred.Dialect
	older  string // processed_at of an identity that is %d minutes older
}

func (db testDatabase) run(t *testing.T, args ...string) result {
	t.Helper()
	return inboxctl(t, []string{"INBOX_DSN=" + db.dsn}, args...)
}

func (db testDatabase) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := db.admin.Exec(statement)
	require.NoError(t, err, statement)
}

func (db testDatabase) count(t *testing.T, from string) (n int) {
	t.Helper()
	require.NoError(t, db.admin.QueryRow("SELECT COUNT(*) FROM "+from).Scan(&n), from)
	return n
}

var databases = map[string]func(t *testing.T) testDatabase{
	"postgres": newPostgres,
	"mysql": func(t *testing.T) testDatabase {
		return newMySQL(t, "INBOX_TEST_MYSQL", "root@tcp(127.0.0.1:3307)/test")
	},
	"mariadb": func(t *testing.T) testDatabase {
		return newMySQL(t, "INBOX_TEST_MARIADB", "root@tcp(127.0.0.1:3306)/test")
	},
	"sqlite": newSQLite,
}

func eachDatabase(t *testing.T, test func(t *testing.T, db testDatabase)) {
	for name, create := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, create(t))
		})
	}
}

func newPostgres(t *testing.T) testDatabase {
	address := inboxtest.Server(t, "INBOX_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable", ping("pgx"))
	u, err := url.Parse(address)
	require.NoError(t, err)
	root := connect(t, "pgx", address)
	u.Path = "/" + createDatabase(t, root)
	pool, err := pgxpool.New(t.Context(), u.String())
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return testDatabase{u.String(), connect(t, "pgx", u.String()), wsql.BeginnerFromPgx(pool), postgres.Schema{}, "processed_at - interval '%d minutes'"}
}

func newMySQL(t *testing.T, variable, fallback string) testDatabase {
	config, err := driver.ParseDSN(inboxtest.Server(t, variable, fallback, ping("mysql")))
	require.NoError(t, err)
	root := connect(t, "mysql", config.FormatDSN())
	config.DBName = createDatabase(t, root)
	admin := connect(t, "mysql", config.FormatDSN())
	return testDatabase{"mysql:" + config.FormatDSN(), admin, wsql.BeginnerFromStdSQL(admin), mysql.Schema{}, "processed_at - INTERVAL %d MINUTE"}
}

func newSQLite(t *testing.T) testDatabase {
	path := filepath.Join(t.TempDir(), "inbox 100%.db") // a name that a URI must escape
	admin := connect(t, "sqlite", "file:"+url.PathEscape(path)+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	return testDatabase{"sqlite:" + path, admin, wsql.BeginnerFromStdSQL(admin), sqlite.Schema{}, "processed_at - 60 * %d"}
}

// createDatabase makes an empty database until the end of the test.
func createDatabase(t *testing.T, root *sql.DB) string {
	name := fmt.Sprintf("inboxctl_%x", rand.Uint64())
	_, err := root.Exec("CREATE DATABASE " + name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := root.Exec("DROP DATABASE " + name)
		require.NoError(t, err)
	})
	return name
}

func connect(t *testing.T, driverName, dsn string) *sql.DB {
	db, err := sql.Open(driverName, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func ping(driverName string) func(dsn string) error {
	return func(dsn string) error {
		db, err := sql.Open(driverName, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return db.PingContext(ctx)
	}
}
