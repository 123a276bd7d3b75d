package sqlite_test

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
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
		inboxtest.TestSchema(t, database("sqlite", func(busy string) url.Values {
			return url.Values{"_pragma": {"journal_mode(WAL)", "busy_timeout(" + busy + ")"}, "_txlock": {"immediate"}}
		}, false))
	})
	t.Run("modernc-deferred", func(t *testing.T) {
		inboxtest.TestSchema(t, database("sqlite", func(busy string) url.Values {
			return url.Values{"_pragma": {"journal_mode(WAL)", "busy_timeout(" + busy + ")"}}
		}, true))
	})
}

func TestDeferred(t *testing.T) {
	t.Run("modernc", func(t *testing.T) {
		inboxtest.TestDeferred(t, database("sqlite", func(busy string) url.Values {
			return url.Values{"_pragma": {"journal_mode(WAL)", "busy_timeout(" + busy + ")"}, "_txlock": {"immediate"}}
		}, false))
	})
	t.Run("modernc-deferred", func(t *testing.T) {
		inboxtest.TestDeferred(t, database("sqlite", func(busy string) url.Values {
			return url.Values{"_pragma": {"journal_mode(WAL)", "busy_timeout(" + busy + ")"}}
		}, true))
	})
}

// database makes databases that are files. The parameters of the DSN depend on the busy timeout in milliseconds.
func database(driver string, parameters func(busy string) url.Values, variant bool) inboxtest.Database {
	return inboxtest.Database{
		Schema: func(table string) inbox.Schema { return sqlite.Schema{MessagesTable: table} },
		Outbox: sqlite.OutboxSchema{},
		New: func(t *testing.T) inboxtest.Instance {
			file := "file:" + filepath.Join(t.TempDir(), "inbox.db") + "?"
			admin := open(t, driver, file+parameters("5000").Encode(), 3)
			t.Cleanup(func() { _ = admin.Close() })
			return inboxtest.Instance{
				Admin:     admin,
				Namespace: "main",
				Open: func(t *testing.T, options inboxtest.Options) inboxtest.Pool {
					busy := "5000"
					if options.LockTimeout > 0 {
						busy = strconv.FormatInt(options.LockTimeout.Milliseconds(), 10)
					}
					return inboxtest.StdPool(open(t, driver, file+parameters(busy).Encode(), options.Connections))
				},
			}
		},
		Features: inboxtest.Features{
			SlowInsert: `INSERT INTO biz (who, step) SELECT 'slow', count(*) FROM (
				WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 50000000) SELECT n FROM numbers)`,
		},
		Mistakes: []inboxtest.Mistake{
			{Name: "text", Statements: recreated("blob not null", "text not null", "blob not null"), Want: []string{"producer", "text", "blob"}},
			{Name: "nullable", Statements: recreated("blob not null", "blob not null", "blob"), Want: []string{"message_id", "blob not null"}},
		},
		Variant: variant,
	}
}

// recreated makes the table again with other types of the columns of the key.
func recreated(consumer, producer, id string) []string {
	return []string{
		"DROP TABLE inbox_messages",
		"CREATE TABLE inbox_messages (consumer " + consumer + ", producer " + producer + ", message_id " + id + `,
			fingerprint blob not null, token integer not null, processed_at integer not null, PRIMARY KEY (consumer, producer, message_id))`,
	}
}

func open(t testing.TB, driver, dsn string, connections int) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(connections)
	return db
}
