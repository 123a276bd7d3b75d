package retention_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/retention"
	"github.com/watermill-inbox/inbox/sqlite"
)

// openDatabase stands for the service's own.
func openDatabase() (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "retention-example")
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("sqlite", "file:"+filepath.Join(dir, "app.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = os.RemoveAll(dir)
	}
}

// process hands messages to a consumer whose handler does nothing.
func process(db *sql.DB, schema sqlite.Schema, consumer string, ids ...string) {
	in, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{Schema: schema, Consumer: consumer, AutoInitializeSchema: true}, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range ids {
		outcome, err := in.Process(message.NewMessage(id, nil), func(context.Context) error { return nil })
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(consumer, id, outcome)
	}
}

func ExampleCleaner() {
	db, remove := openDatabase()
	defer remove()
	process(db, sqlite.Schema{}, "stock", "1", "2")
	process(db, sqlite.Schema{}, "ledger", "1")
	if _, err := db.Exec("UPDATE inbox_messages SET processed_at = processed_at - 40 * 86400 WHERE message_id = CAST('1' AS BLOB)"); err != nil {
		log.Fatal(err)
	}

	const day = 24 * time.Hour
	cleaner, err := retention.NewCleaner(wsql.BeginnerFromStdSQL(db), retention.Config{
		Schema:   sqlite.Schema{},
		Horizon:  30 * day,
		Horizons: map[string]time.Duration{"ledger": retention.Forever},
		Needs:    retention.Needs{BrokerRetention: 7 * day, DeadLetterAge: 14 * day}, // 7, 14, and 7 again
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	report, err := cleaner.RunOnce(context.Background()) // a service runs it all the time: go cleaner.Run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Removed(), "of", report.Examined(), "removed")

	// Output:
	// stock 1 processed
	// stock 2 processed
	// ledger 1 processed
	// 1 of 2 removed
}

func ExampleIdentities_Forget() {
	db, remove := openDatabase()
	defer remove()
	process(db, sqlite.Schema{}, "stock", "1", "1")

	ctx := context.Background()
	identities, err := retention.NewIdentities(wsql.BeginnerFromStdSQL(db), sqlite.Schema{}, nil)
	if err != nil {
		log.Fatal(err)
	}
	record, err := identities.Find(ctx, "stock", inbox.Identity{ID: "1"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(record.ID, "with", record.Fingerprint.Name)
	if err := identities.Forget(ctx, "stock", record.Identity); err != nil {
		log.Fatal(err)
	}
	process(db, sqlite.Schema{}, "stock", "1")

	// Output:
	// stock 1 processed
	// stock 1 duplicate
	// 1 with sha256
	// stock 1 processed
}

// A projection is built again beside the old one, by a consumer with another name.
func Example_rebuildWithAVersion() {
	db, remove := openDatabase()
	defer remove()
	process(db, sqlite.Schema{}, "stock-v1", "1", "2")
	process(db, sqlite.Schema{}, "stock-v2", "1", "2", "2") // the same messages from the beginning

	// Output:
	// stock-v1 1 processed
	// stock-v1 2 processed
	// stock-v2 1 processed
	// stock-v2 2 processed
	// stock-v2 2 duplicate
}

// A projection with a table of its own shares nothing with the old one.
func Example_rebuildWithATable() {
	db, remove := openDatabase()
	defer remove()
	process(db, sqlite.Schema{}, "stock", "1")
	process(db, sqlite.Schema{MessagesTable: "inbox_rebuild"}, "stock", "1", "1")
	process(db, sqlite.Schema{}, "stock", "1")

	// Output:
	// stock 1 processed
	// stock 1 processed
	// stock 1 duplicate
	// stock 1 duplicate
}
