package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// commit ends the attempt.
func (a *attempt) commit() (Outcome, error) {
	if err := a.checkNativeStatus(); err != nil {
		a.rollback()
		return 0, err
	}
	var err error
	if a.committer != nil {
		err = a.execCommit()
	} else {
		err = a.commitError(a.inbox.runner.Commit(a.tx, a.cancel))
	}
	if err != nil {
		return 0, err
	}
	a.completed = a.claim != nil
	return Processed, nil
}

// commitError says what an error of COMMIT means.
func (a *attempt) commitError(err error) error {
	if err == nil {
		return nil
	}
	if a.report.EarlyAck {
		a.inbox.logger.Error("Commit of a message that was acked before failed", err, a.logFields())
	}

	if isEnded(err) {
		return a.ended(StageCommit, err)
	}
	switch a.inbox.config.Schema.ClassifyCommit(err) {
	case CommitConflict:
		a.report.Conflicts++
		return a.fail(StageCommit, fmt.Errorf("%w: %w", errConflict, err))
	case CommitFailed:
		// As if the statement had failed in the handler, which wrote what a deferred constraint refuses.
		failed := a.fail(StageCommit, err)
		failed.permanent = true
		return failed
	case CommitLost:
		return a.lost(StageCommit, err)
	default:
		return a.uncertain(err)
	}
}

// checkNativeStatus uses what a pgx connection knows about its transaction without asking the server.
func (a *attempt) checkNativeStatus() error {
	tx, ok := sqltx.Native(a.tx)
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

func (a *attempt) rollback() {
	defer a.over()
	a.disarm()
	if err := a.inbox.runner.Rollback(a.tx, a.cancel); err != nil && !isEnded(err) {
		// The server rolls back when the connection ends, so this changes nothing for the message.
		a.inbox.logger.Debug("Rollback failed", a.logFields().Add(map[string]any{"err": err.Error()}))
	}
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
	checkErr := a.inbox.runner.InTx(ctx, nil, func(tx wsql.Tx) (err error) {
		committed, err = sqltx.QueryRow(ctx, tx, a.inbox.checker.TransactionCheckQuery(a.row))
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
