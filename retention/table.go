package retention

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// table runs statements on the table of identities, each in a short transaction of its own.
type table struct {
	statements
	runner  *sqltx.Runner
	timeout time.Duration
}

func newTable(db wsql.Beginner, schema inbox.Schema, timeout time.Duration, logger watermill.LoggerAdapter) (*table, error) {
	dialect, err := dialectOf(schema)
	if err != nil {
		return nil, err
	}
	if err := sqltx.CheckPool(db); err != nil {
		return nil, err
	}
	return &table{statements{dialect}, &sqltx.Runner{DB: db, Timeout: timeout, Logger: logger}, timeout}, nil
}

// read runs fn, which only reads. On engines with one writer the transaction must not begin as the writer.
func (t *table) read(ctx context.Context, fn func(ctx context.Context, tx wsql.Tx) error) error {
	options := t.QueueTxOptions()
	if t.OneWriter() {
		options = &sql.TxOptions{ReadOnly: true}
	}
	return t.repeat(ctx, options, t.transient, func(ctx context.Context, tx wsql.Tx) error {
		if avoider, ok := t.Dialect.(deferred.SortAvoider); ok {
			if _, err := sqltx.QueryRow(ctx, tx, avoider.AvoidSort()); err != nil {
				return err
			}
		}
		return fn(ctx, tx)
	})
}

// write runs fn, which is safe to repeat.
func (t *table) write(ctx context.Context, fn func(ctx context.Context, tx wsql.Tx) error) error {
	return t.repeat(ctx, t.QueueTxOptions(), t.transient, fn)
}

// writeOnce runs fn, which is not to be repeated once it may have been committed: the error is inbox.ErrCommitUncertain then.
func (t *table) writeOnce(ctx context.Context, fn func(ctx context.Context, tx wsql.Tx) error) error {
	again := func(err error) bool { return !t.uncertain(err) && t.transient(err) }
	err := t.repeat(ctx, t.QueueTxOptions(), again, fn)
	if t.uncertain(err) {
		return fmt.Errorf("%w: %w", inbox.ErrCommitUncertain, err)
	}
	return err
}

// uncertain tells that a transaction may be committed.
func (t *table) uncertain(err error) bool {
	var commit *sqltx.CommitError
	return errors.As(err, &commit) && t.ClassifyCommit(commit) == inbox.CommitUncertain
}

// repeats is how often a transaction is tried before a sweep gives up until the next one.
const repeats = 10

// repeat tries again, with jitter, errors that again tells.
func (t *table) repeat(ctx context.Context, options *sql.TxOptions, again func(error) bool, fn func(ctx context.Context, tx wsql.Tx) error) error {
	waits := sqltx.Backoff(10*time.Millisecond, time.Second)
	for n := 1; ; n++ {
		err := t.once(ctx, options, fn)
		if err == nil || n == repeats || ctx.Err() != nil || !again(err) || !sqltx.Sleep(ctx, waits.NextBackOff()) {
			return err
		}
	}
}

func (t *table) once(ctx context.Context, options *sql.TxOptions, fn func(ctx context.Context, tx wsql.Tx) error) error {
	if t.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.timeout)
		defer cancel()
	}
	return t.runner.InTx(ctx, options, func(tx wsql.Tx) error { return fn(ctx, tx) })
}

// transient tells that the database gave way to another transaction, or did not answer.
func (t *table) transient(err error) bool {
	switch t.Classify(err) {
	case inbox.ClassConflict, inbox.ClassLockTimeout, inbox.ClassUnavailable:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrTxDone)
}

// nextConsumer returns the first consumer after another by the order of bytes.
func (t *table) nextConsumer(ctx context.Context, last string) (consumer string, found bool, err error) {
	err = t.read(ctx, func(ctx context.Context, tx wsql.Tx) (err error) {
		var next []byte
		found, err = sqltx.QueryRow(ctx, tx, t.statements.nextConsumer(last), &next)
		consumer = string(next)
		return err
	})
	return consumer, found, err
}

// consumers calls fn for each consumer that has identities, by jumps through the primary key.
func (t *table) consumers(ctx context.Context, fn func(consumer string) error) error {
	for last := ""; ; {
		next, found, err := t.nextConsumer(ctx, last)
		if err != nil || !found {
			return err
		}
		if err := fn(next); err != nil {
			return err
		}
		last = next
	}
}

// exists tells whether the database has the table of a queue. Who uses the direct mode only has none.
func (t *table) exists(ctx context.Context, queue deferred.Queue) (exists bool, err error) {
	err = t.read(ctx, func(ctx context.Context, tx wsql.Tx) (err error) {
		exists, err = sqltx.QueryRow(ctx, tx, t.QueueDescribeQuery(queue))
		return err
	})
	return exists, err
}

// pendingTopics returns the topics of a consumer that have messages in the table of pending ones.
func (t *table) pendingTopics(ctx context.Context, tx wsql.Tx, consumer string) (topics []string, err error) {
	for {
		var (
			next []byte
			last *string
		)
		if len(topics) > 0 {
			last = &topics[len(topics)-1]
		}
		found, err := sqltx.QueryRow(ctx, tx, t.nextTopic(consumer, last), &next)
		if err != nil || !found {
			return topics, err
		}
		topics = append(topics, string(next))
	}
}

// remove deletes identities of a consumer, in their order, in the caller's transaction: those for which the condition still holds and which no queue has by now.
func (t *table) remove(ctx context.Context, tx wsql.Tx, consumer string, identities []inbox.Identity, condition string, hasPending bool) (removed int, err error) {
	var topics []string
	if hasPending {
		if topics, err = t.lockedTopics(ctx, tx, consumer); err != nil {
			return 0, err
		}
	}
	for len(identities) > 0 {
		n := 1
		for n < len(identities) && identities[n].Producer == identities[0].Producer {
			n++
		}
		old, err := t.notPending(ctx, tx, consumer, topics, identities[:n])
		if err != nil {
			return 0, err
		}
		if identities = identities[n:]; len(old) == 0 {
			continue
		}
		affected, err := sqltx.Exec(ctx, tx, t.delete(consumer, old, condition))
		if err != nil {
			return 0, fmt.Errorf("delete: %w", err)
		}
		removed += int(affected)
	}
	return removed, nil
}

// lockedTopics is pendingTopics in a transaction that writes: on an engine with one writer it must not begin as a reader.
func (t *table) lockedTopics(ctx context.Context, tx wsql.Tx, consumer string) ([]string, error) {
	if first := t.ClaimFirst(deferred.Pending); !first.IsZero() {
		if _, err := sqltx.Exec(ctx, tx, first); err != nil {
			return nil, err
		}
	}
	return t.pendingTopics(ctx, tx, consumer)
}

// notPending leaves out identities of one producer that pending messages have. It is a statement of its own, because engines that lock what a DELETE reads would lock the queue.
func (t *table) notPending(ctx context.Context, tx wsql.Tx, consumer string, topics []string, identities []inbox.Identity) ([]inbox.Identity, error) {
	pending := map[string]bool{}
	for _, topic := range topics {
		err := sqltx.Each(ctx, tx, t.pending(consumer, topic, identities...), func(scan func(...any) error) error {
			var id []byte
			err := scan(&id)
			pending[string(id)] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(identities), func(identity inbox.Identity) bool { return pending[identity.ID] }), nil
}
