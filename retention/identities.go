package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// Identities is what an operator sees of the table of identities, and may forget of it. It is safe for concurrent use.
type Identities struct {
	table    *table
	observer Observer
}

// NewIdentities makes one on the database of the Inbox. A nil logger logs nothing.
func NewIdentities(db wsql.Beginner, schema inbox.Schema, logger watermill.LoggerAdapter) (*Identities, error) {
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	t, err := newTable(db, schema, 0, logger)
	if err != nil {
		return nil, fmt.Errorf("retention: new identities: %w", err)
	}
	t.runner.Timeout = finishTimeout
	return &Identities{t, nopObserver{}}, nil
}

// WithObserver returns Identities of the same table whose CountRange and ForgetRange tell an Observer about each of their transactions: what was examined, and
// what was removed. An Observer that ends the context ends the work between two transactions, so that the number returned is exact.
func (i *Identities) WithObserver(observer Observer) *Identities {
	return &Identities{i.table, observer}
}

// finishTimeout bounds COMMIT and ROLLBACK. Statements of an operator take as long as their context allows.
const finishTimeout = 5 * time.Second

// Record is a processed identity.
type Record struct {
	inbox.Identity
	Processed   time.Time // by the database's clock, to the second on MySQL and SQLite
	Fingerprint inbox.Fingerprint
}

// ErrNotFound says that the consumer has no such identity.
var ErrNotFound = errors.New("no such identity")

var errNoConsumer = errors.New("no consumer is named")

// Consumers returns all consumers that have identities. It costs a round trip for each, however many identities there are.
func (i *Identities) Consumers(ctx context.Context) (names []string, err error) {
	err = i.table.consumers(ctx, func(consumer string) error {
		names = append(names, consumer)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("retention: consumers: %w", err)
	}
	return names, nil
}

// Estimate returns about how many identities a consumer has, as the planner of the database assumes, without reading them. On SQLite it counts them.
func (i *Identities) Estimate(ctx context.Context, consumer string) (n int64, err error) {
	if i.table.ExplainJSON() == "" {
		n, err = i.count(ctx, consumer, "1 = 1")
	} else {
		var plan []byte
		err = i.table.read(ctx, func(ctx context.Context, tx wsql.Tx) error {
			_, err := sqltx.QueryRow(ctx, tx, i.table.plan(consumer), &plan)
			return err
		})
		if err == nil {
			n, err = rowsOf(plan)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("retention: estimate consumer %q: %w", consumer, err)
	}
	return n, nil
}

// rowsOf finds the number of rows in a plan as PostgreSQL, MySQL or MariaDB writes it, wherever it stands.
func rowsOf(plan []byte) (int64, error) {
	var tree any
	if err := json.Unmarshal(plan, &tree); err != nil {
		return 0, fmt.Errorf("plan: %w", err)
	}
	if n, ok := findRows(tree); ok {
		return n, nil
	}
	return 0, fmt.Errorf("plan has no number of rows: %s", plan)
}

func findRows(tree any) (int64, bool) {
	switch tree := tree.(type) {
	case map[string]any:
		for _, name := range []string{"Plan Rows", "rows_examined_per_scan", "estimated_rows", "rows"} {
			if n, ok := tree[name].(float64); ok {
				return int64(n), true
			}
		}
		for _, part := range tree {
			if n, ok := findRows(part); ok {
				return n, true
			}
		}
	case []any:
		for _, part := range tree {
			if n, ok := findRows(part); ok {
				return n, true
			}
		}
	}
	return 0, false
}

// ProcessedSince counts what a consumer processed in the time up to now. There is no index on time, so it reads all identities of the consumer: bound it with the context.
func (i *Identities) ProcessedSince(ctx context.Context, consumer string, age time.Duration) (int64, error) {
	n, err := i.count(ctx, consumer, "NOT ("+i.table.olderThan(age)+")")
	if err != nil {
		return 0, fmt.Errorf("retention: count consumer %q: %w", consumer, err)
	}
	return n, nil
}

func (i *Identities) count(ctx context.Context, consumer, condition string) (n int64, err error) {
	err = i.table.read(ctx, func(ctx context.Context, tx wsql.Tx) error {
		_, err := sqltx.QueryRow(ctx, tx, i.table.count(consumer, condition), &n)
		return err
	})
	return n, err
}

// Find returns one identity, or ErrNotFound.
func (i *Identities) Find(ctx context.Context, consumer string, identity inbox.Identity) (Record, error) {
	record := Record{Identity: identity}
	err := i.table.read(ctx, func(ctx context.Context, tx wsql.Tx) error {
		var (
			fingerprint []byte
			micros      int64
		)
		found, err := sqltx.QueryRow(ctx, tx, i.table.identity(consumer, identity), &fingerprint, &micros)
		if err == nil && !found {
			err = ErrNotFound
		}
		record.Processed, record.Fingerprint = time.UnixMicro(micros), inbox.DecodeFingerprint(string(fingerprint))
		return err
	})
	if err != nil {
		return Record{}, fmt.Errorf("retention: consumer %q: message %q of producer %q: %w", consumer, identity.ID, identity.Producer, err)
	}
	return record, nil
}

// Filter selects identities of one consumer.
type Filter struct {
	Consumer string          // required
	After    *inbox.Identity // only identities behind this one, by the order of bytes of producer and id; nil: from the first
	From, To time.Time       // processed at From or later and before To; the zero value: no bound
	Limit    int             // 0: 100
}

// List returns identities in the order of producer and id, without their fingerprints. With From or To it may read many for each that it returns.
func (i *Identities) List(ctx context.Context, filter Filter) (records []Record, err error) {
	if filter.Consumer == "" {
		return nil, fmt.Errorf("retention: list: %w", errNoConsumer)
	}
	if filter.Limit <= 0 {
		filter.Limit = 100
	}
	w := i.table.walk(filter.Consumer, i.table.between(filter.From, filter.To), false, max(filter.Limit, operatorWindow))
	if filter.After != nil {
		w.window.after, w.window.within = filter.After, true
	}
	for !w.ended && len(records) < filter.Limit {
		chosen, _, err := w.next(ctx)
		if err != nil {
			return nil, fmt.Errorf("retention: list consumer %q: %w", filter.Consumer, err)
		}
		for _, one := range chosen[:min(len(chosen), filter.Limit-len(records))] {
			records = append(records, Record{Identity: one.Identity, Processed: one.processed})
		}
	}
	return records, nil
}

// ForgetError lists identities that cannot be forgotten. Nothing was changed.
type ForgetError struct {
	Consumer string
	Missing  []inbox.Identity // are not in the table
	Pending  []inbox.Identity // have a message in the table of pending ones: discard it, or let it be processed
}

// Error names the consumer and the identities.
func (e *ForgetError) Error() string {
	return fmt.Sprintf("consumer %q: not in the table: %q; with a message in the pending table, whatever its state: %q", e.Consumer, e.Missing, e.Pending)
}

// Forget removes identities, so that their messages are processed again when they come again. If one of them is not there, or a pending message has it, nothing is removed and the
// error is a *ForgetError. After inbox.ErrCommitUncertain all or none may be removed: look with Find before you try again, because a message may have been processed again meanwhile.
func (i *Identities) Forget(ctx context.Context, consumer string, identities ...inbox.Identity) error {
	if consumer == "" {
		return fmt.Errorf("retention: forget: %w", errNoConsumer)
	}
	hasPending, err := i.table.exists(ctx, deferred.Pending)
	if err == nil {
		err = i.table.writeOnce(ctx, func(ctx context.Context, tx wsql.Tx) error {
			return i.forget(ctx, tx, consumer, identities, hasPending)
		})
	}
	if err != nil {
		return fmt.Errorf("retention: forget: %w", err)
	}
	return nil
}

func (i *Identities) forget(ctx context.Context, tx wsql.Tx, consumer string, identities []inbox.Identity, hasPending bool) error {
	refused := &ForgetError{Consumer: consumer}
	for _, identity := range identities { // deleted first, because SQLite must begin with a write
		affected, err := sqltx.Exec(ctx, tx, i.table.delete(consumer, []inbox.Identity{identity}, "1 = 1"))
		if err != nil {
			return err
		}
		if affected == 0 {
			refused.Missing = append(refused.Missing, identity)
		}
	}
	if hasPending {
		topics, err := i.table.pendingTopics(ctx, tx, consumer)
		if err != nil {
			return err
		}
		for _, identity := range identities {
			for _, topic := range topics {
				found, err := sqltx.QueryRow(ctx, tx, i.table.pending(consumer, topic, identity))
				if err != nil {
					return err
				}
				if found {
					refused.Pending = append(refused.Pending, identity)
				}
			}
		}
	}
	if len(refused.Missing)+len(refused.Pending) > 0 {
		return refused // and the transaction is rolled back
	}
	return nil
}

const operatorWindow = 1000

// CountRange returns how many identities ForgetRange would remove.
func (i *Identities) CountRange(ctx context.Context, consumer string, from, to time.Time) (n int64, err error) {
	err = i.rangeOf(ctx, consumer, from, to, func(chosen []inbox.Identity, _ bool) error {
		n += int64(len(chosen))
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("retention: count range: %w", err)
	}
	return n, nil
}

// ForgetRange removes the identities that a consumer processed at from or later and before to, but those of pending messages, in transactions of up to 1,000. It returns how
// many it removed, also with an error: those stay removed.
func (i *Identities) ForgetRange(ctx context.Context, consumer string, from, to time.Time) (n int64, err error) {
	condition := i.table.between(from, to)
	err = i.rangeOf(ctx, consumer, from, to, func(chosen []inbox.Identity, hasPending bool) error {
		var removed int
		start := time.Now()
		err := i.table.write(ctx, func(ctx context.Context, tx wsql.Tx) (err error) {
			removed, err = i.table.remove(ctx, tx, consumer, chosen, condition, hasPending)
			return err
		})
		n += int64(removed)
		if err == nil {
			i.observer.ObserveBatch(Batch{Consumer: consumer, Removed: removed, Duration: time.Since(start)})
		}
		return err
	})
	if err != nil {
		return n, fmt.Errorf("retention: forget range: %w", err)
	}
	return n, nil
}

func (i *Identities) rangeOf(ctx context.Context, consumer string, from, to time.Time, fn func(chosen []inbox.Identity, hasPending bool) error) error {
	switch {
	case consumer == "":
		return errNoConsumer
	case from.IsZero() || to.IsZero() || !from.Before(to):
		return fmt.Errorf("from %s to %s is no range of time", from, to)
	}
	hasPending, err := i.table.exists(ctx, deferred.Pending)
	if err != nil {
		return err
	}
	for w := i.table.walk(consumer, i.table.between(from, to), hasPending, operatorWindow); !w.ended; {
		start := time.Now()
		found, examined, err := w.next(ctx)
		if err != nil {
			return err
		}
		i.observer.ObserveBatch(Batch{Consumer: consumer, Examined: examined, Duration: time.Since(start)})
		if err := ctx.Err(); err != nil { // the Observer may have ended it
			return err
		}
		chosen := make([]inbox.Identity, len(found))
		for n, one := range found {
			chosen[n] = one.Identity
		}
		if len(chosen) == 0 {
			continue
		}
		if err := fn(chosen, hasPending); err != nil {
			return err
		}
	}
	return nil
}
