package inbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
)

// errConflict marks errors after which a new transaction may succeed at once.
var errConflict = errors.New("the database gave up the transaction in favour of another")

// isEnded tells that the driver refused a statement because its transaction had been ended in this process.
func isEnded(err error) bool { return isAny(err, sql.ErrTxDone, pgx.ErrTxClosed) }

// lost is the error of a transaction that the engine ended. Nothing of it is committed, so another attempt is safe.
func (a *attempt) lost(stage Stage, cause error) error {
	if !errors.Is(cause, ErrTransactionLost) {
		cause = fmt.Errorf("%w: %w", ErrTransactionLost, cause)
	}
	err := a.fail(stage, cause)
	a.inbox.logger.Error("Transaction ended behind the handler's back", err, a.logFields())
	return err
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

// handlerError passes a handler's error through unless it is a transient error of the database or may come from the end of the message's context.
func (a *attempt) handlerError(err error) error {
	a.report.Stage = StageHandler
	if isEnded(err) {
		if a.connected() {
			return err // of another transaction of the handler's
		}
		return a.ended(StageHandler, err)
	}
	switch a.inbox.config.Schema.Classify(err) {
	case ClassUnavailable:
		if isAny(err, io.EOF, io.ErrUnexpectedEOF) && a.connected() {
			return err // of a decoder, not of the connection
		}
		return a.failStatement(StageHandler, err)
	case ClassConflict, ClassLockTimeout, ClassAborted:
		return a.failStatement(StageHandler, err)
	default:
		return a.afterEnd(err)
	}
}

// afterEnd keeps a shutdown from making messages poison: a handler whose context has ended may fail for no other reason and not say so, as
// status errors of gRPC do not. If the message is at fault, its redelivery shows it.
func (a *attempt) afterEnd(err error) error {
	ended := a.entry.Err()
	if ended == nil || a.inbox.config.HandlerContext == Detached || isAny(err, context.Canceled, context.DeadlineExceeded) {
		return err
	}
	return a.fail(StageHandler, fmt.Errorf("%w; the message's context had ended: %w", err, ended))
}

// connected asks whether the transaction is open and its connection answers.
func (a *attempt) connected() bool {
	ctx, cancel := context.WithTimeout(a.ctx, a.inbox.config.CommitTimeout)
	defer cancel()
	_, _, err := a.inbox.store.find(ctx, a.tx, a.row)
	return err == nil || a.inbox.config.Schema.Classify(err) == ClassAborted
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
	if isEnded(err) {
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
	return fmt.Errorf("attempt took longer than TxTimeout (%s): %w: %v", a.inbox.config.TxTimeout, context.DeadlineExceeded, err) //nolint:errorlint // see above
}
