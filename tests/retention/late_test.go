package retention_test

import (
	"context"
	"database/sql"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/retention"
)

// duringSweep does something after the first transaction of a sweep, which found what is to be removed by the next ones.
type duringSweep func()

func (f *duringSweep) ObserveBatch(retention.Batch) {
	if *f != nil {
		(*f)()
	}
	*f = nil
}

// What became young, or was received again, after a sweep found it stays.
func TestSweep_looks_again_before_it_removes(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		for _, id := range []string{"old", "pending", "processed again", "waits"} {
			l.add("c", inbox.Identity{ID: id}, time.Hour)
		}
		for _, id := range []string{"pending", "waits"} {
			l.receive("elsewhere", "topic of "+id, id)
		}
		l.exec("UPDATE inbox_pending SET consumer = " + l.literal("c") + " WHERE message_id = " + l.literal("waits"))

		late := duringSweep(func() {
			l.exec("UPDATE inbox_pending SET consumer = " + l.literal("c"))
			l.age(-time.Hour, "message_id = "+l.literal("processed again"))
		})
		report := l.sweep(retention.Config{Horizon: time.Minute, Observer: &late})
		require.Equal(l, []string{"c//pending", "c//processed again", "c//waits"}, l.identities())
		require.EqualValues(l, 1, report.Removed())
	})
}

func TestSweep_survives_its_observer(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		l.add("c", inbox.Identity{ID: "old"}, time.Hour)
		logger := watermill.NewCaptureLogger()
		panics := duringSweep(func() { panic("no such label") })
		cleaner, err := retention.NewCleaner(l.pool, retention.Config{Schema: l.Schema, Horizon: time.Minute, Observer: &panics}, logger)
		require.NoError(l, err)
		_, err = cleaner.RunOnce(context.Background())
		require.NoError(l, err)
		require.Empty(l, l.identities())
		require.ErrorContains(l, logger.Captured()[watermill.ErrorLogLevel][0].Err, "no such label")
	})
}

// silentCommits is a pool whose COMMITs of deletes happen, or do not, and get no answer.
type silentCommits struct {
	wsql.Beginner
	happen bool
	asked  *int
}

func (p silentCommits) BeginTx(ctx context.Context, options *sql.TxOptions) (wsql.Tx, error) {
	tx, err := p.Beginner.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return &silentTx{Tx: tx, pool: p}, nil
}

type silentTx struct {
	wsql.Tx
	pool    silentCommits
	deletes bool
}

func (tx *silentTx) ExecContext(ctx context.Context, statement string, args ...any) (wsql.Result, error) {
	tx.deletes = tx.deletes || strings.HasPrefix(statement, "DELETE")
	return tx.Tx.ExecContext(ctx, statement, args...)
}

func (tx *silentTx) Commit() error {
	if !tx.deletes {
		return tx.Tx.Commit()
	}
	*tx.pool.asked++
	end := tx.Tx.Rollback
	if tx.pool.happen {
		end = tx.Tx.Commit
	}
	if err := end(); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// Forgetting once more could forget what was processed meanwhile, and "not in the table" would be no true answer.
func TestForget_is_not_repeated_when_its_commit_got_no_answer(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		for _, happen := range []bool{false, true} {
			l.exec("DELETE FROM inbox_messages")
			l.add("c", inbox.Identity{ID: "1"}, time.Hour)
			asked := 0
			identities, err := retention.NewIdentities(silentCommits{l.pool, happen, &asked}, l.Schema, nil)
			require.NoError(l, err)
			require.ErrorIs(l, identities.Forget(context.Background(), "c", inbox.Identity{ID: "1"}), inbox.ErrCommitUncertain)
			require.Equal(l, 1, asked)
			require.Equal(l, happen, len(l.identities()) == 0)
		}
	})
}
