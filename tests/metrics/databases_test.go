package metrics

import (
	"database/sql"
	"os"
	"sync"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
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

// engines are what the tests know beyond databases.All, whose driver and server each has.
var engines = map[string]struct {
	uuid  string
	reads []string
}{
	"postgres-pgx": {"gen_random_uuid()::text::bytea", readsOfPostgres},
	"postgres-std": {"gen_random_uuid()::text::bytea", readsOfPostgres},
	"mysql":        {"UUID()", readsOfMySQL},
	"mariadb":      {"UUID()", readsOfMariaDB},
	"sqlite":       {"CAST(hex(randomblob(16)) AS BLOB)", nil},
}

func open(t testing.TB, name string) *database {
	t.Helper()
	on, engine := databases.All[name], engines[name]
	dsn := on.Create(t)
	db, err := sql.Open(on.Driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	pool, closePool, err := on.Open(dsn, 8)
	require.NoError(t, err)
	closeOnce := sync.OnceFunc(closePool)
	t.Cleanup(closeOnce)
	return &database{on.Schema, db, pool, closeOnce, engine.uuid, engine.reads}
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
