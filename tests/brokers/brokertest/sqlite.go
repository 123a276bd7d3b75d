package brokertest

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	_ "github.com/watermill-inbox/inbox/internal/modernc"
)

// OpenSQLite opens a database for one test, with a table of effects that has the given column. It has no key, so that the inbox alone
// prevents a second row.
func OpenSQLite(t testing.TB, column string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	_, err = db.Exec("CREATE TABLE effects (" + column + " TEXT NOT NULL)")
	require.NoError(t, err)
	return db
}
