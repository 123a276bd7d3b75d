//go:build cgo

package deferred_test

import (
	"path/filepath"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"github.com/watermill-inbox/inbox/sqlite"
)

// sqliteInC is SQLite compiled by a C compiler where there is one. With the race detector, SQLite in Go is so slow that a hundred subscriptions starve each
// other as its one writer.
const sqliteInC = "sqlite-mattn"

func init() {
	databases[sqliteInC] = database{sqlite.Schema{}, "sqlite3", func(t testing.TB) string {
		return "file:" + filepath.Join(t.TempDir(), "inbox.db") + "?_journal_mode=WAL&_busy_timeout=10000&_synchronous=NORMAL&_txlock=immediate"
	}, openStd("sqlite3")}
}
