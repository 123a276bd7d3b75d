package sqltx

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5"
)

// Runner runs transactions on one pool. It is safe for concurrent use.
type Runner struct {
	DB      wsql.Beginner
	Timeout time.Duration // of each COMMIT and ROLLBACK
	Logger  watermill.LoggerAdapter

	// abandoned counts the COMMITs and ROLLBACKs that did not return within Timeout and still run.
	abandoned atomic.Int64
}

// Abandoned returns how many COMMITs and ROLLBACKs did not return within Timeout and still run.
func (r *Runner) Abandoned() int64 { return r.abandoned.Load() }

// InTx runs fn in a transaction of its own. Even statements that only read run in one: in a pool with autocommit
// off they would leave a transaction open on the connection.
func (r *Runner) InTx(ctx context.Context, options *sql.TxOptions, fn func(tx wsql.Tx) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	tx, err := r.DB.BeginTx(ctx, options)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	open := true
	defer func() {
		if open {
			_ = r.Rollback(tx, cancel)
		}
	}()

	if err := fn(tx); err != nil {
		return err
	}
	open = false
	if err := r.Commit(tx, cancel); err != nil {
		return &CommitError{err}
	}
	return nil
}

// CommitError is the error of COMMIT itself, after all statements succeeded. Its class tells whether the transaction may be committed.
type CommitError struct{ err error }

func (e *CommitError) Error() string { return "commit: " + e.err.Error() }
func (e *CommitError) Unwrap() error { return e.err }

// errTimeout says that COMMIT or ROLLBACK did not return in time.
type errTimeout struct{ statement string }

func (e errTimeout) Error() string { return e.statement + " did not return within its timeout" }
func (e errTimeout) Unwrap() error { return context.DeadlineExceeded }

// Commit is bounded by Timeout with every driver.
func (r *Runner) Commit(tx wsql.Tx, cancelTx context.CancelFunc) error {
	return r.finish(tx, "COMMIT", cancelTx, pgx.Tx.Commit, wsql.Tx.Commit)
}

// Rollback is bounded by Timeout with every driver.
func (r *Runner) Rollback(tx wsql.Tx, cancelTx context.CancelFunc) error {
	return r.finish(tx, "ROLLBACK", cancelTx, pgx.Tx.Rollback, wsql.Tx.Rollback)
}

func (r *Runner) finish(
	tx wsql.Tx,
	statement string,
	cancelTx context.CancelFunc,
	withContext func(pgx.Tx, context.Context) error,
	withoutContext func(wsql.Tx) error,
) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.Timeout)
	defer cancel()

	if pgxTx, ok := Native(tx); ok {
		return withContext(pgxTx, ctx)
	}

	// database/sql has no context here. Some drivers stop when the context of BeginTx ends, others only when
	// the connection breaks, so the call may outlive this function.
	done := make(chan error, 1)
	go func() { done <- withoutContext(tx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		r.abandoned.Add(1)
		go func() {
			err := <-done
			r.abandoned.Add(-1)
			r.Logger.Debug("Abandoned "+statement+" returned", watermill.LogFields{"err": err})
		}()
		cancelTx()
		return errTimeout{statement}
	}
}
