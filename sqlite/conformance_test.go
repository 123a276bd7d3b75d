package sqlite_test

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/sqlite"
)

func TestConformance(t *testing.T) {
	// modernc.org/sqlite initializes itself with a data race if the first connections are opened at once.
	first := open(t, "sqlite", ":memory:", 1)
	if err := first.Ping(); err != nil {
		t.Fatal(err)
	}
	_ = first.Close()

	t.Run("modernc", func(t *testing.T) {
		inboxtest.TestSchema(t, database("sqlite", url.Values{
			"_pragma": {"journal_mode(WAL)", "busy_timeout(5000)"}, "_txlock": {"immediate"},
		}, false))
	})
	t.Run("modernc-deferred", func(t *testing.T) {
		inboxtest.TestSchema(t, database("sqlite", url.Values{
			"_pragma": {"journal_mode(WAL)", "busy_timeout(5000)"},
		}, true))
	})
}

// database makes databases that are files.
func database(driver string, parameters url.Values, variant bool) inboxtest.Database {
	return inboxtest.Database{
		Schema: func(table string) inbox.Schema { return sqlite.Schema{MessagesTable: table} },
		Outbox: sqlite.OutboxSchema{},
		New: func(t *testing.T) inboxtest.Instance {
			dsn := "file:" + filepath.Join(t.TempDir(), "inbox.db") + "?" + parameters.Encode()
			admin := open(t, driver, dsn, 3)
			t.Cleanup(func() { _ = admin.Close() })
			return inboxtest.Instance{
				Admin:     admin,
				Namespace: "main",
				Open: func(t *testing.T, options inboxtest.Options) inboxtest.Pool {
					return inboxtest.StdPool(open(t, driver, dsn, options.Connections))
				},
			}
		},
		Features: inboxtest.Features{
			SlowInsert: `INSERT INTO biz (who, step) SELECT 'slow', count(*) FROM (
				WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 50000000) SELECT n FROM numbers)`,
		},
		Variant: variant,
	}
}

func open(t *testing.T, driver, dsn string, connections int) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(connections)
	return db
}
