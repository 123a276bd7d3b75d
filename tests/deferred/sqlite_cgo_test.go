//go:build cgo

package deferred_test

import (
	"path/filepath"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"github.com/watermill-inbox/inbox/sqlite"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// sqliteInC is SQLite compiled by a C compiler where there is one. With the race detector, SQLite in Go is so slow that a hundred subscriptions starve each
// other as its one writer.
const sqliteInC = "sqlite-mattn"

func init() {
	databases.All[sqliteInC] = databases.Database{Schema: sqlite.Schema{}, Driver: "sqlite3", Create: func(t testing.TB) string {
		return "file:" + filepath.Join(t.TempDir(), "inbox.db") + "?_journal_mode=WAL&_busy_timeout=10000&_synchronous=NORMAL&_txlock=immediate"
	}, Open: databases.OpenStd("sqlite3")}
}
