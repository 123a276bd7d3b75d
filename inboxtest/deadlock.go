package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"
)

// needsDeadlocks prepares the rows that loseDeadlock locks.
func (f *fixture) needsDeadlocks(t *testing.T) {
	t.Helper()
	if !f.features().ConcurrentWriters {
		t.Skip("one writer at a time cannot deadlock")
	}
	f.exec(t, "INSERT INTO counter (id, n) VALUES (2, 0)")
}

// loseDeadlock makes the transaction of the message being handled the victim of a real deadlock and returns the engine's error. PostgreSQL ends
// the transaction that waited first, InnoDB the one that wrote fewer rows; this one is both. It runs in handlers, so it does not stop the test.
func (f *fixture) loseDeadlock(t *testing.T, ctx context.Context) error { //nolint:revive // t comes first in this package
	rival, err := f.heavyRival(ctx)
	if err != nil {
		t.Errorf("begin the rival of the deadlock: %v", err)
		return err
	}
	if err := f.execInTx(ctx, "UPDATE counter SET n = n + 1 WHERE id = 1"); err != nil {
		t.Errorf("lock the first row: %v", err)
		return errors.Join(err, rival.Rollback())
	}
	ended := make(chan error, 1)
	go func() { ended <- f.crossLocks(ctx, rival) }()
	lost := f.execInTx(ctx, "UPDATE counter SET n = n + 1 WHERE id = 2")
	if err := <-ended; err != nil || lost == nil {
		t.Errorf("the deadlock took the wrong transaction: its error is %v, the rival's %v", lost, err)
	}
	return lost
}

// heavyRival locks the second row and has many rows written.
func (f *fixture) heavyRival(ctx context.Context) (*sql.Tx, error) {
	rival, err := f.instance.Admin.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	for range 100 {
		if _, err := rival.ExecContext(ctx, f.insertBiz(), "rival", 0); err != nil {
			return nil, errors.Join(err, rival.Rollback())
		}
	}
	if _, err := rival.ExecContext(ctx, "UPDATE counter SET n = n + 1 WHERE id = 2"); err != nil {
		return nil, errors.Join(err, rival.Rollback())
	}
	return rival, nil
}

// crossLocks makes the rival wait for the other transaction, some time after that waits for the rival: nothing but the view of a server could signal
// that it does, and InnoDB's is a cache. The rival leaves nothing behind.
func (f *fixture) crossLocks(ctx context.Context, rival *sql.Tx) error {
	time.Sleep(300 * time.Millisecond)
	_, err := rival.ExecContext(ctx, "UPDATE counter SET n = n + 1 WHERE id = 1")
	return errors.Join(err, rival.Rollback())
}
