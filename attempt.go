package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
)

// errConflict marks errors after which a new transaction may succeed at once.
var errConflict = errors.New("the database gave up the transaction in favour of another")

// attempt is one transaction of a delivery.
type attempt struct {
	*delivery
	ctx      context.Context    // of the transaction; it does not end with the message's
	cancel   context.CancelFunc // makes database/sql roll back
	deadline time.Time
	timer    *time.Timer // calls cancel at the deadline
	unwatch  func()      // ends the watch over a pgx connection
	tx       wsql.Tx
	outbox   outbox
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

	if a.tx, err = d.inbox.db.BeginTx(a.ctx, d.inbox.config.TxOptions); err != nil {
		return 0, a.failStatement(StageBegin, err)
	}
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
		return a.compare()
	}

	resolving := d.unresolved != nil
	d.unresolved = nil // the row was not there, so the COMMIT before did not happen
	if resolving {
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

// watchNative closes the connection of a pgx transaction at the deadline, so that a handler that ignores its context holds no locks.
// database/sql rolls back by itself when the context of BeginTx ends.
func (a *attempt) watchNative() {
	tx, ok := nativePgx(a.tx)
	if !ok || tx.Conn() == nil {
		return
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(a.ctx, func() {
		defer close(closed)
		_ = tx.Conn().PgConn().Conn().Close()
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
	defer func(start time.Time) { a.waited += time.Since(start) }(time.Now())

	a.row.Token = newToken()
	query := a.inbox.config.Schema.InsertQuery(a.row)
	if a.inbox.noWait != nil {
		var probe wsql.Query
		probe, query = a.inbox.noWait.NoWaitQueries(a.row)
		if !probe.IsZero() {
			found, err := queryRow(ctx, a.tx, probe)
			if err != nil || found {
				return false, a.insertError(ctx, err)
			}
		}
	}
	inserted, err := a.inbox.store.insert(ctx, a.tx, query)
	return inserted, a.insertError(ctx, err)
}

// insertDeadline leaves a resolution all of its time, because the transaction in doubt may still hold the identity.
func (a *attempt) insertDeadline() time.Time {
	if a.unresolved != nil {
		return a.resolveDeadline
	}
	limit := a.inbox.config.WaitTimeout
	return time.Now().Add(max(limit-a.waited, limit/10))
}

func (a *attempt) insertError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	expired := errors.Is(ctx.Err(), context.DeadlineExceeded)
	lockTimeout := a.inbox.config.Schema.Classify(err) == ClassLockTimeout
	if expired || lockTimeout && (a.inbox.noWait != nil || a.waited >= a.inbox.config.WaitTimeout) {
		return a.fail(StageInsert, fmt.Errorf("%w, or the database did not answer within WaitTimeout: %w", ErrInFlight, err))
	}
	return a.failStatement(StageInsert, err)
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

	if stored.fingerprint.differs(a.fingerprint) {
		a.rollback()
		return a.mismatch(stored)
	}
	if a.unresolved != nil {
		a.unresolved = nil
		a.inbox.logger.Info("Inbox resolved an uncertain commit: it was committed", a.logFields())
		return Processed, nil
	}
	a.report.RedeliveryAge = stored.age
	a.inbox.logger.Debug("Inbox recognised a duplicate", a.logFields())
	return Duplicate, nil
}

func (a *attempt) mismatch(stored storedIdentity) (Outcome, error) {
	a.unresolved = nil // whoever committed this identity, it was not this message
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

// run calls the handler and writes what it produced to the outbox.
func (a *attempt) run() error {
	h := &holder{inbox: a.inbox, msg: a.msg, row: a.row, tx: a.tx, publish: a.publishFromHandler}
	a.outbox = outbox{config: &a.inbox.config, tx: a.tx, incoming: a.msg}

	handlerCtx, cancel := a.handlerContext(h)
	produced, err := a.call(h, handlerCtx)
	failure := h.empty()
	timedOut := !a.disarm() // from here on CommitTimeout bounds what is left
	cancel()

	switch {
	case timedOut:
		return a.fail(StageHandler, a.outOfTime(err))
	case failure != nil && errors.Is(failure, errHandlerEnded):
		return a.lost(StageHandler, failure)
	case failure != nil:
		return a.handlerError(failure)
	case err != nil:
		return a.handlerError(err)
	}
	if err := a.checkAcks(); err != nil {
		return err
	}
	return a.finishEffect(handlerCtx, produced)
}

// handlerContext is the context that the handler sees.
func (a *attempt) handlerContext(h *holder) (context.Context, context.CancelFunc) {
	parent := a.entry
	if a.inbox.config.HandlerContext == Detached {
		parent = context.WithoutCancel(parent)
	}
	return context.WithDeadline(context.WithValue(parent, contextKey{}, h), a.deadline)
}

// call runs the handler. Afterwards the message's context ends when it did at entry, and has the values that the handler stored.
func (a *attempt) call(h *holder, ctx context.Context) ([]*message.Message, error) {
	a.report.HandlerRuns++
	a.msg.SetContext(ctx)
	defer func() {
		_ = h.empty() // also when the handler panics
		if left := a.msg.Context(); left == ctx {
			a.msg.SetContext(a.entry)
		} else {
			a.msg.SetContext(splitContext{lifetime: a.entry, values: left})
		}
	}()
	return a.handler(a.msg)
}

// checkAcks looks at what the handler told the broker itself.
func (a *attempt) checkAcks() error {
	select {
	case <-a.msg.Nacked():
		return a.fail(StageHandler, ErrNacked)
	default:
	}
	select {
	case <-a.msg.Acked():
	default:
		return nil
	}

	a.report.EarlyAck = true
	a.inbox.logger.Info("Message was acked before its transaction is committed: a failed commit would lose it", a.logFields())
	if a.inbox.config.OnEarlyAck == nil {
		return nil
	}
	if err := a.inbox.config.OnEarlyAck(a.msg); err != nil {
		return a.fail(StageHandler, fmt.Errorf("OnEarlyAck: %w", err))
	}
	return nil
}

// finishEffect makes sure that the transaction is still there and writes the outgoing messages.
func (a *attempt) finishEffect(handlerCtx context.Context, produced message.Messages) error {
	ctx, cancel := context.WithTimeout(a.ctx, a.inbox.config.CommitTimeout)
	defer cancel()

	topic := message.PublishTopicFromCtx(a.entry)
	if len(produced) > 0 {
		if a.inbox.config.Outbox == nil {
			return a.fail(StageOutbox, ErrNoOutbox)
		}
		if topic == "" {
			return a.fail(StageOutbox, ErrNoPublishTopic)
		}
	}
	if a.inbox.checker != nil && (len(produced) > 0 || !a.inbox.checker.CommitReportsLoss()) {
		if err := a.checkTransaction(ctx); err != nil {
			return err
		}
	}
	if len(produced) == 0 {
		return nil
	}

	restore := withOutboxContext(ctx, handlerCtx, produced)
	defer restore()
	if err := a.outbox.publish(topic, produced); err != nil {
		return a.failStatement(StageOutbox, err)
	}
	return nil
}

// withOutboxContext gives produced messages a context that lives as long as the insert may take and has their own values
// and the handler's, as the Router would give them.
func withOutboxContext(ctx, handlerCtx context.Context, produced message.Messages) (restore func()) {
	own := make([]context.Context, len(produced))
	for n, msg := range produced {
		own[n] = msg.Context()
		msg.SetContext(splitContext{lifetime: ctx, values: own[n], fallback: handlerCtx})
	}
	return func() {
		for n, msg := range produced {
			msg.SetContext(own[n])
		}
	}
}

// publishFromHandler serves Inbox.Publisher. The holder's lock is held.
func (a *attempt) publishFromHandler(topic string, msgs message.Messages) error {
	if a.inbox.checker != nil {
		ctx, cancel := context.WithTimeout(a.ctx, a.inbox.config.CommitTimeout)
		defer cancel()
		if err := a.checkTransaction(ctx); err != nil {
			return err
		}
	}
	return a.outbox.publish(topic, msgs)
}

// checkTransaction fails if the engine has ended the transaction, or the handler has.
func (a *attempt) checkTransaction(ctx context.Context) error {
	found, err := queryRow(ctx, a.tx, a.inbox.checker.TransactionCheckQuery(a.row))
	if err != nil {
		return a.failStatement(StageCheck, err)
	}
	if !found {
		return a.lost(StageCheck, errors.New("the engine rolled it back and the handler returned no error: "+
			"return the errors of all statements"))
	}
	return nil
}

// commit ends the attempt.
func (a *attempt) commit() (Outcome, error) {
	if err := a.checkNativeStatus(); err != nil {
		a.rollback()
		return 0, err
	}
	err := a.inbox.commit(a.tx, a.cancel)
	if err == nil {
		return Processed, nil
	}
	if a.report.EarlyAck {
		a.inbox.logger.Error("Commit of a message that was acked before failed", err, a.logFields())
	}

	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, pgx.ErrTxClosed) {
		return 0, a.ended(StageCommit, err)
	}
	switch a.inbox.config.Schema.ClassifyCommit(err) {
	case CommitConflict:
		a.report.Conflicts++
		return 0, a.fail(StageCommit, fmt.Errorf("%w: %w", errConflict, err))
	case CommitFailed:
		return 0, a.fail(StageCommit, err)
	case CommitLost:
		return 0, a.lost(StageCommit, err)
	default:
		return 0, a.uncertain(err)
	}
}

// checkNativeStatus uses what a pgx connection knows about its transaction without asking the server.
func (a *attempt) checkNativeStatus() error {
	tx, ok := nativePgx(a.tx)
	if !ok || tx.Conn() == nil {
		return nil
	}
	switch tx.Conn().PgConn().TxStatus() {
	case 'E':
		return a.lost(StageCommit, errors.New("a statement failed and the handler returned no error: return the errors of all statements"))
	case 'I':
		return a.ended(StageCommit, errors.New("no transaction is open"))
	default:
		return nil
	}
}

// uncertain starts the resolution: the next attempts insert the identity again.
func (a *attempt) uncertain(err error) error {
	a.report.UncertainCommits++
	a.unresolved = err
	if a.report.UncertainCommits == 1 {
		a.resolveDeadline = time.Now().Add(a.inbox.config.ResolveTimeout)
	}
	a.inbox.logger.Info("Commit got no clear answer, inbox resolves it", a.logFields().Add(map[string]any{"err": err.Error()}))
	return a.fail(StageCommit, err)
}

// lost is the error of a transaction that the engine ended. Nothing of it is committed, so another attempt is safe.
func (a *attempt) lost(stage Stage, cause error) error {
	if !errors.Is(cause, ErrTransactionLost) {
		cause = fmt.Errorf("%w: %w", ErrTransactionLost, cause)
	}
	err := a.fail(stage, cause)
	a.inbox.logger.Error("Transaction ended behind the handler's back", err, a.logFields())
	return err
}

// explainImplicitCommit finds out whether a statement of the failed handler, such as DDL on MySQL, has committed the transaction. Only
// engines whose COMMIT does not tell are asked.
func (a *attempt) explainImplicitCommit(err error) error {
	if a.inbox.checker == nil || a.inbox.checker.CommitReportsLoss() || a.report.Stage != StageHandler ||
		a.inbox.config.Schema.Classify(err) == ClassUnavailable {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.entry), a.inbox.config.CommitTimeout)
	defer cancel()

	var committed bool
	checkErr := a.inbox.inTx(ctx, func(tx wsql.Tx) (err error) {
		committed, err = queryRow(ctx, tx, a.inbox.checker.TransactionCheckQuery(a.row))
		return err
	})
	if checkErr != nil || !committed {
		return err
	}
	explained := a.fail(StageHandler, fmt.Errorf("a statement of the handler, probably DDL, committed the transaction before the handler failed: "+
		"its identity and the effects up to there stay, redeliveries count as duplicates: %w", err))
	explained.permanent, explained.final = IsPoison(err), true // a retry would only find the duplicate
	a.inbox.logger.Error("Handler's statement committed the inbox's transaction", explained, a.logFields())
	return explained
}

// ended is the error of a transaction that the handler ended itself. What it committed stays, so no further attempt may run
// in this process; the redelivery cannot be prevented.
func (a *attempt) ended(stage Stage, cause error) error {
	err := a.fail(stage, fmt.Errorf("%w: the handler ended it with Commit or Rollback: %w", ErrTransactionLost, cause))
	err.final = true
	a.inbox.logger.Error("Handler ended the inbox's transaction itself: this message is not protected, what the handler committed stays and cannot be undone",
		err, a.logFields())
	return err
}

// handlerError passes a handler's error through unless it is a transient error of the database.
func (a *attempt) handlerError(err error) error {
	a.report.Stage = StageHandler
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, pgx.ErrTxClosed) {
		return a.ended(StageHandler, err)
	}
	switch a.inbox.config.Schema.Classify(err) {
	case ClassConflict, ClassLockTimeout, ClassUnavailable, ClassAborted:
		return a.failStatement(StageHandler, err)
	default:
		return err
	}
}

// failStatement wraps an error of the database and marks those that a new transaction may avoid.
func (a *attempt) failStatement(stage Stage, err error) error {
	var wrapped *Error
	if errors.As(err, &wrapped) {
		return err
	}
	if a.ctx.Err() != nil {
		return a.fail(stage, a.outOfTime(err))
	}
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, pgx.ErrTxClosed) {
		return a.ended(stage, err)
	}
	switch a.inbox.config.Schema.Classify(err) {
	case ClassConflict, ClassLockTimeout:
		a.report.Conflicts++
		return a.fail(stage, fmt.Errorf("%w: %w", errConflict, err))
	case ClassAborted:
		return a.lost(stage, err)
	default:
		return a.fail(stage, err)
	}
}

// outOfTime hides that the cause is mostly context.Canceled: it was the attempt's own time that ended, not the message's.
func (a *attempt) outOfTime(err error) error {
	if err == nil {
		err = errors.New("the handler returned too late")
	}
	return fmt.Errorf("attempt took longer than TxTimeout (%s): %w: %v", a.inbox.config.TxTimeout, context.DeadlineExceeded, err)
}

func (a *attempt) rollback() {
	a.disarm()
	if err := a.inbox.rollback(a.tx, a.cancel); err != nil && !errors.Is(err, sql.ErrTxDone) && !errors.Is(err, pgx.ErrTxClosed) {
		// The server rolls back when the connection ends, so this changes nothing for the message.
		a.inbox.logger.Debug("Rollback failed", a.logFields().Add(map[string]any{"err": err.Error()}))
	}
}
