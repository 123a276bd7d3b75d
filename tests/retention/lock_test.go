package retention_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/retention"
)

// batches stops a sweep after each of its transactions.
type batches struct{ reached, goOn chan struct{} }

func newBatches() batches { return batches{make(chan struct{}, 100), make(chan struct{}, 100)} }

func (b batches) ObserveBatch(retention.Batch) {
	b.reached <- struct{}{}
	<-b.goOn
}

func TestSweepersTakeTurns(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		if l.dialect().OneWriter() {
			return // no lock: all writers take turns
		}
		ctx := context.Background()
		l.add("c", inbox.Identity{ID: "1"}, time.Hour)
		slow := newBatches()
		first, second := l.cleaner(retention.Config{Horizon: time.Minute, Observer: slow}), l.cleaner(retention.Config{Horizon: time.Minute})
		ended := make(chan error, 1)
		go func() {
			_, err := first.RunOnce(ctx)
			ended <- err
		}()
		<-slow.reached
		_, err := second.RunOnce(ctx)
		require.ErrorIs(l, err, retention.ErrAnotherSweeper)
		close(slow.goOn)
		require.NoError(l, <-ended)
		_, err = second.RunOnce(ctx)
		require.NoError(l, err, "the lock is given back")
		require.Empty(l, l.identities())
	})
}

// Whatever ends a sweep must not leave the lock with a connection of the pool.
func TestInterruptedSweepGivesTheLockBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		l.add("c", inbox.Identity{ID: "1"}, time.Hour)
		ctx, cancel := context.WithCancel(context.Background())
		slow := newBatches()
		cleaner := l.cleaner(retention.Config{Horizon: time.Minute, Observer: slow})
		ended := make(chan error, 1)
		go func() {
			_, err := cleaner.RunOnce(ctx)
			ended <- err
		}()
		<-slow.reached
		cancel()
		close(slow.goOn)
		require.ErrorIs(l, <-ended, context.Canceled)
		require.Len(l, l.identities(), 1)

		other, err := retention.NewCleaner(l.open(2), retention.Config{Schema: l.Schema, Horizon: time.Minute}, nil)
		require.NoError(l, err)
		_, err = other.RunOnce(context.Background())
		require.NoError(l, err)
		require.Empty(l, l.identities())
	})
}

// A sweeper whose connection with the lock is gone stops, because another may be at work.
func TestSweepEndsWithItsLock(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		if l.dialect().OneWriter() {
			return
		}
		l.add("c", inbox.Identity{ID: "1"}, time.Hour)
		slow := newBatches()
		cleaner := l.cleaner(retention.Config{Horizon: time.Minute, Observer: slow})
		ended := make(chan error, 1)
		go func() {
			_, err := cleaner.RunOnce(context.Background())
			ended <- err
		}()
		<-slow.reached
		if l.Driver == "pgx" {
			l.exec("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())")
		} else {
			var id int64
			lock := "SHA2(CONCAT('watermill-inbox sweeper ', DATABASE(), '.', 'inbox_messages'), 224)"
			require.NoError(l, l.db.QueryRow("SELECT IS_USED_LOCK("+lock+")").Scan(&id))
			l.exec(fmt.Sprintf("KILL %d", id))
			require.Eventually(l, func() bool { return l.count("SELECT IS_FREE_LOCK("+lock+")") == 1 }, 10*time.Second, 10*time.Millisecond)
		}
		close(slow.goOn)
		require.ErrorContains(l, <-ended, "lock is lost")
		require.Len(l, l.identities(), 1)
	})
}

func TestRun_sweeps_again_and_again(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		cleaner := l.cleaner(retention.Config{Horizon: time.Minute, Interval: 10 * time.Millisecond})
		ended := make(chan error, 1)
		go func() { ended <- cleaner.Run(ctx) }()
		for range 3 {
			l.add("c", inbox.Identity{ID: "1"}, time.Hour)
			require.Eventually(l, func() bool { return l.count("SELECT COUNT(*) FROM inbox_messages") == 0 }, 20*time.Second, 5*time.Millisecond)
		}
		cancel()
		require.NoError(l, <-ended)
	})
}

func TestPoolOfOneConnectionIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		_, err := retention.NewCleaner(l.open(1), retention.Config{Schema: l.Schema, Horizon: time.Minute}, nil)
		if l.dialect().OneWriter() {
			require.NoError(l, err)
			return
		}
		require.ErrorContains(l, err, "one connection")
	})
}
