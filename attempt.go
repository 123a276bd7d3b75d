package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// attempt is one transaction of a delivery.
type attempt struct {
	*delivery
	ctx      context.Context    // of the transaction; it does not end with the message's
	cancel   context.CancelFunc // makes database/sql roll back
	deadline time.Time
	timer    *time.Timer // calls cancel at the deadline
	unwatch  func()      // ends the watch over a pgx connection
	tx       wsql.Tx
	began    time.Time // zero: no transaction is open
	outbox   *outbox

	committer StatementCommitter // nil: COMMIT is sent by itself
	last      wsql.Query         // what it sends together with COMMIT
}

// attempt runs BEGIN, the insert of the identity, the handler, the outbox insert and COMMIT. Whatever happens in between, a
// panic and runtime.Goexit included, leaves nothing behind.
func (d *delivery) attempt() (outcome Outcome, err error) {
	a := &attempt{delivery: d}
	a.ctx, a.cancel = context.WithCancel(context.WithoutCancel(d.entry))
	defer a.cancel()

	a.deadline = time.Now().Add(d.inbox.config.TxTimeout)
	if d.unresolved != nil && d.resolveDeadline.Before(a.deadline) {
		a.deadline = d.resolveDeadline
	}
	a.timer = time.AfterFunc(time.Until(a.deadline), a.cancel)
	defer a.disarm()

	start := time.Now()
	a.tx, err = d.inbox.runner.DB.BeginTx(a.ctx, d.inbox.config.TxOptions)
	d.report.BeginWait += time.Since(start)
	if err != nil {
		return 0, a.waitError(a.ctx, StageBegin, start, err)
	}
	a.began = time.Now()
	defer a.over()
	a.watchNative()
	open := true
	defer func() {
		if open {
			a.rollback()
		}
	}()

	inserted, err := a.insert()
	if err != nil {
		return 0, err
	}
	if !inserted {
		outcome, err := a.compare()
		if err != nil {
			return 0, err
		}
		completed, err := a.completeDuplicate()
		if err != nil {
			return 0, err
		}
		if !completed {
			return outcome, nil
		}
		open = false
		if _, err := a.commit(); err != nil {
			return 0, err
		}
		return outcome, nil
	}

	if d.unresolved != nil {
		d.unresolved = nil // the row was not there, so the COMMIT before did not happen
		d.report.ResolvedRolledBack++
		// The handler gets the whole time, not what is left of the resolution's.
		a.deadline = time.Now().Add(d.inbox.config.TxTimeout)
		if !a.timer.Reset(d.inbox.config.TxTimeout) {
			return 0, a.fail(StageInsert, context.DeadlineExceeded)
		}
	}
	if err := a.run(); err != nil {
		open = false
		a.rollback()
		return 0, a.explainImplicitCommit(err)
	}
	open = false
	return a.commit()
}

// over counts the time of a transaction that has ended.
func (a *attempt) over() {
	if !a.began.IsZero() {
		a.report.InTransaction += time.Since(a.began)
		a.began = time.Time{}
	}
}

// watchNative closes the connection of a pgx transaction at the deadline, so that a handler that ignores its context holds no locks.
// database/sql rolls back by itself when the context of BeginTx ends.
func (a *attempt) watchNative() {
	tx, ok := sqltx.Native(a.tx)
	if !ok || tx.Conn() == nil {
		return
	}
	conn := tx.Conn().PgConn().Conn()
	closed := make(chan struct{})
	stop := context.AfterFunc(a.ctx, func() {
		defer close(closed)
		_ = conn.Close()
	})
	a.unwatch = func() {
		if !stop() {
			<-closed // the connection must not go back to the pool before
		}
	}
}

// disarm ends the bound of the attempt's time. It reports false if the time has ended. It must be called before the
// connection goes back to the pool.
func (a *attempt) disarm() bool {
	inTime := a.timer.Stop()
	if a.unwatch != nil {
		a.unwatch()
		a.unwatch = nil
	}
	return inTime
}

// insert reports whether this attempt owns the identity.
func (a *attempt) insert() (bool, error) {
	ctx, cancel := context.WithDeadline(a.ctx, a.insertDeadline())
	defer cancel()
	start := time.Now()
	defer func() { a.report.IdentityWait += time.Since(start) }()

	a.row.Token = newToken()
	query := a.inbox.config.Schema.InsertQuery(a.row)
	if a.inbox.noWait != nil {
		var probe wsql.Query
		probe, query = a.inbox.noWait.NoWaitQueries(a.row)
		if !probe.IsZero() {
			found, err := sqltx.QueryRow(ctx, a.tx, probe)
			if err != nil || found {
				return false, a.waitError(ctx, StageInsert, start, err)
			}
		}
	}
	inserted, err := a.inbox.store.insert(ctx, a.tx, query)
	return inserted, a.waitError(ctx, StageInsert, start, err)
}

// insertDeadline leaves a resolution all of its time, because the transaction in doubt may still hold the identity.
func (a *attempt) insertDeadline() time.Time {
	if a.unresolved != nil {
		return a.resolveDeadline
	}
	limit := a.inbox.config.WaitTimeout
	return time.Now().Add(max(limit-a.waited, limit/10))
}

// waitError is the error of a statement that may have waited for another transaction: the insert, and on SQLite also BEGIN.
func (a *attempt) waitError(ctx context.Context, stage Stage, start time.Time, err error) error {
	a.waited += time.Since(start)
	if err == nil {
		return nil
	}
	class := a.inbox.config.Schema.Classify(err)
	expired := stage == StageInsert && errors.Is(ctx.Err(), context.DeadlineExceeded)
	refused := class == ClassLockTimeout && a.inbox.noWait != nil
	waitedEnough := (class == ClassLockTimeout || class == ClassConflict) && a.waited >= a.inbox.config.WaitTimeout
	if expired || refused || waitedEnough {
		return a.fail(stage, fmt.Errorf("%w, or the database did not answer within WaitTimeout: %w", ErrInFlight, err))
	}
	return a.failStatement(stage, err)
}

// compare answers a delivery whose identity is in the table.
func (a *attempt) compare() (Outcome, error) {
	ctx, cancel := context.WithTimeout(a.ctx, a.inbox.config.CommitTimeout)
	defer cancel()

	stored, found, err := a.inbox.store.find(ctx, a.tx, a.row)
	if err != nil {
		return 0, a.failStatement(StageCompare, err)
	}
	if !found {
		// Not evidence of anything: the row was removed since, or with NoWait another transaction holds the key.
		if a.inbox.noWait != nil {
			return 0, a.fail(StageInsert, ErrInFlight)
		}
		a.report.Conflicts++
		return 0, a.fail(StageCompare, fmt.Errorf("%w: the stored identity is gone", errConflict))
	}

	if stored.fingerprint.Differs(a.fingerprint) {
		a.rollback()
		return a.mismatch(stored)
	}
	if a.unresolved != nil {
		a.unresolved = nil
		a.report.ResolvedCommitted++
		a.inbox.logger.Info("Inbox resolved an uncertain commit: it was committed", a.logFields())
		return Processed, nil
	}
	a.report.RedeliveryAge = stored.age
	a.inbox.logger.Debug("Inbox recognised a duplicate", a.logFields())
	return Duplicate, nil
}

func (a *attempt) mismatch(stored storedIdentity) (Outcome, error) {
	if a.unresolved != nil {
		a.unresolved = nil // whoever committed this identity, it was not this message
		a.report.ResolvedRolledBack++
	}
	a.report.Mismatch = true
	mismatch := &MismatchError{
		Consumer: a.row.Consumer,
		Identity: a.identity(),
		Stored:   stored.fingerprint,
		Received: a.fingerprint,
	}
	if err := a.inbox.config.OnMismatch(a.msg, mismatch); err != nil {
		a.report.Stage = StageCompare
		return 0, err
	}
	a.inbox.logger.Info("Inbox treats a message with other content as a duplicate, as OnMismatch says", a.logFields())
	return Duplicate, nil
}
