package deferred

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// table runs the statements of one queue.
type table struct {
	statements
	runner  *sqltx.Runner
	timeout time.Duration
	logger  watermill.LoggerAdapter
}

func newTable(db wsql.Beginner, schema inbox.Schema, queue Queue, timeout time.Duration, logger watermill.LoggerAdapter) (*table, error) {
	dialect, err := dialectOf(schema)
	if err != nil {
		return nil, err
	}
	if err := sqltx.CheckPool(db); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	return &table{
		statements: statements{dialect, queue},
		runner:     &sqltx.Runner{DB: db, Timeout: timeout, Logger: logger},
		timeout:    timeout,
		logger:     logger,
	}, nil
}

// on is the same table reached through another pool or connection.
func (t *table) on(db wsql.Beginner) *table {
	other := *t
	other.runner = &sqltx.Runner{DB: db, Timeout: t.timeout, Logger: t.logger}
	return &other
}

const initializeTimeout = time.Minute

// initialize creates the table of the queue and that of the identities, which the statements of a queue read.
func (t *table) initialize(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, initializeTimeout)
	defer cancel()
	queries := append(t.SchemaInitializingQueries(), t.QueueInitializingQueries(t.queue)...)
	err := t.retryConflicts(ctx, func() error {
		return t.runner.InTx(ctx, nil, func(tx wsql.Tx) error {
			return run(ctx, tx, queries...)
		})
	})
	if err != nil {
		return fmt.Errorf("deferred: initialize schema: %w", err)
	}
	return t.verify(ctx)
}

// verify compares the live table with the dialect's DDL.
func (t *table) verify(ctx context.Context) error {
	err := t.retryConflicts(ctx, func() error {
		return t.runner.InTx(ctx, nil, func(tx wsql.Tx) error {
			return inbox.VerifyTable(ctx, tx, t.tableName(), t.QueueDescribeQuery(t.queue), t.QueueColumns(t.queue))
		})
	})
	if err != nil {
		return fmt.Errorf("deferred: verify schema: %w", err)
	}
	return nil
}

// once runs fn in a short transaction of its own.
func (t *table) once(ctx context.Context, fn func(ctx context.Context, tx wsql.Tx) error) error {
	return t.onceWith(ctx, t.QueueTxOptions(), fn)
}

func (t *table) onceWith(ctx context.Context, options *sql.TxOptions, fn func(ctx context.Context, tx wsql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	return t.runner.InTx(ctx, options, func(tx wsql.Tx) error { return fn(ctx, tx) })
}

// repeat runs fn, which must be safe to repeat, in short transactions until one is known to be committed: conflicts, lost connections and COMMITs without
// an answer are tried again for as long as Timeout allows.
func (t *table) repeat(ctx context.Context, fn func(ctx context.Context, tx wsql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*t.timeout) // a COMMIT without an answer alone takes one
	defer cancel()
	return t.retryConflicts(ctx, func() error { return t.once(ctx, fn) })
}

// writeOnce is repeat for an fn that must not run again once it may have been committed: the error is inbox.ErrCommitUncertain then.
func (t *table) writeOnce(ctx context.Context, fn func(ctx context.Context, tx wsql.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*t.timeout)
	defer cancel()
	return t.retryConflicts(ctx, func() error {
		err := t.once(ctx, fn)
		var commit *sqltx.CommitError
		if errors.As(err, &commit) && t.ClassifyCommit(commit) == inbox.CommitUncertain {
			return fmt.Errorf("%w: %w", inbox.ErrCommitUncertain, err)
		}
		return err
	})
}

// read is repeat for statements that only read. On engines with one writer their transaction must not begin as the writer, as it would with
// _txlock=immediate in the DSN, or it waits for the handler in flight. (mattn/go-sqlite3 lets it wait nevertheless.)
func (t *table) read(ctx context.Context, fn func(ctx context.Context, tx wsql.Tx) error) error {
	options := t.QueueTxOptions()
	if t.OneWriter() {
		options = &sql.TxOptions{ReadOnly: true}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*t.timeout)
	defer cancel()
	return t.retryConflicts(ctx, func() error { return t.onceWith(ctx, options, fn) })
}

// exec runs a statement in a short transaction of its own and reports how many rows it affected.
func (t *table) exec(ctx context.Context, query wsql.Query) (affected int64, err error) {
	err = t.once(ctx, func(ctx context.Context, tx wsql.Tx) (err error) {
		affected, err = sqltx.Exec(ctx, tx, query)
		return err
	})
	return affected, err
}

// run executes statements one after the other. Those of no text are left out.
func run(ctx context.Context, tx wsql.Tx, queries ...wsql.Query) error {
	for _, query := range queries {
		if query.IsZero() {
			continue
		}
		if _, err := tx.ExecContext(ctx, query.Query, query.Args...); err != nil {
			return err
		}
	}
	return nil
}

// retryConflicts tries fn again, with jitter, while the database gives way to another transaction or does not answer.
func (t *table) retryConflicts(ctx context.Context, fn func() error) error {
	waits := sqltx.Backoff(5*time.Millisecond, 500*time.Millisecond)
	for {
		err := fn()
		if err == nil || !t.transient(err) {
			return err
		}
		if !sqltx.Sleep(ctx, waits.NextBackOff()) {
			return err
		}
	}
}

// transient tells errors after which the same transaction may succeed, or may have been committed.
func (t *table) transient(err error) bool {
	if errors.Is(err, inbox.ErrCommitUncertain) {
		return false
	}
	switch t.Classify(err) {
	case inbox.ClassConflict, inbox.ClassLockTimeout, inbox.ClassUnavailable, inbox.ClassDuplicate:
		return true
	}
	return errors.Is(err, errVanished) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrTxDone)
}
