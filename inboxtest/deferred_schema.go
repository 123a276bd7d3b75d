package inboxtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

// testStoreSchema: an operator makes and verifies the table of a queue without any Receiver or Subscriber.
func testStoreSchema(t *testing.T, f *fixture) {
	ctx := context.Background()
	for _, queue := range []deferred.Queue{deferred.Pending, deferred.Outgoing} {
		table := f.database.Schema("").(deferred.Dialect).QueueTable(queue)
		f.exec(t, "DROP TABLE IF EXISTS "+table)
		store := f.operator(t, queue)
		wantTableError(t, store.Verify(ctx), table, true)

		for range 2 { // again is no error
			if err := store.InitializeSchema(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for _, same := range []*deferred.Store{store, store.WithTimeout(time.Minute), store.WithTimeout(0)} {
			if err := same.Verify(ctx); err != nil {
				t.Fatal(err)
			}
			wantCounts(t, same)
		}

		f.exec(t, "DROP TABLE "+table)
		f.exec(t, "CREATE TABLE "+table+" (seq INTEGER)")
		wantTableError(t, store.Verify(ctx), table, false)
		f.exec(t, "DROP TABLE "+table)
	}
}

func wantTableError(t *testing.T, err error, table string, missing bool) {
	t.Helper()
	var tableErr *inbox.TableError
	if !errors.As(err, &tableErr) || tableErr.Table != table || tableErr.Missing() != missing {
		t.Fatalf("want a TableError of %s, missing: %t; got: %v", table, missing, err)
	}
}
