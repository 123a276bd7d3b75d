package inboxtest

import (
	"context"
	"errors"
	"testing"

	"github.com/watermill-inbox/inbox"
)

// rows are how many rows the tables have.
type rows struct {
	biz, inbox, outbox int
}

// want stops the test unless the tables have so many rows.
func (f *fixture) want(t *testing.T, want rows) {
	t.Helper()
	got := rows{f.biz(t), f.identities(t), f.outbox(t)}
	if got != want {
		t.Fatalf("rows in the tables: %+v, want %+v", got, want)
	}
}

func (f *fixture) biz(t *testing.T) int {
	t.Helper()
	return f.number(t, "SELECT COUNT(*) FROM biz")
}

// bizOf counts the rows in biz with that name.
func (f *fixture) bizOf(t *testing.T, who string) int {
	t.Helper()
	return f.number(t, "SELECT COUNT(*) FROM biz WHERE who = "+f.database.Placeholder(1), who)
}

func (f *fixture) identities(t *testing.T) int {
	t.Helper()
	return f.number(t, "SELECT COUNT(*) FROM "+inbox.DefaultMessagesTable)
}

func (f *fixture) outbox(t *testing.T) int {
	t.Helper()
	return f.number(t, "SELECT COUNT(*) FROM "+f.database.Outbox.MessagesTable(outgoing))
}

func (f *fixture) counter(t *testing.T) int {
	t.Helper()
	return f.number(t, "SELECT n FROM counter WHERE id = 1")
}

// number returns what a query with one column and one row returns.
func (f *fixture) number(t *testing.T, query string, args ...any) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := f.tryNumber(ctx, query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (f *fixture) tryNumber(ctx context.Context, query string, args ...any) (int, error) {
	// In a transaction of its own, so that it sees the newest rows even if the DSN turns autocommit off.
	tx, err := f.instance.Admin.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	var n int
	err = tx.QueryRowContext(ctx, query, args...).Scan(&n)
	return n, errors.Join(err, tx.Rollback())
}

// wantIdle fails unless all connections of the pool become idle and no pool of the database has a transaction open. It waits a little, because
// database/sql rolls back in the background when a context ends.
func (f *fixture) wantIdle(t *testing.T, pool Pool) {
	t.Helper()
	eventually(t, "no connection in use at the end of the test", func() bool { return pool.InUse() == 0 })
	f.waitForNoTransaction(t, "no open transaction at the end of the test")
}

// waitForWaiters returns when so many statements wait for a lock. Without a view into the engine it returns at once: such engines have
// one writer, and who waits waits in the client.
func (f *fixture) waitForWaiters(t *testing.T, want int) {
	t.Helper()
	if f.instance.Waiting != nil {
		waitFor(t, "statements that wait for a lock", f.instance.Waiting, func(waiting int) bool { return waiting >= want })
	}
}

// waitForNoTransaction returns when the pools have no transaction open.
func (f *fixture) waitForNoTransaction(t *testing.T, what string) {
	t.Helper()
	if f.instance.Transactions != nil {
		waitFor(t, what, f.instance.Transactions, func(open int) bool { return open == 0 })
	}
}

func waitFor(t *testing.T, what string, count func(context.Context) (int, error), hold func(int) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	eventually(t, what, func() bool {
		n, err := count(ctx)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return hold(n)
	})
}
