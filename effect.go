package inbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// run calls the handler and writes what it produced to the outbox.
func (a *attempt) run() error {
	if err := a.entry.Err(); err != nil && a.inbox.config.HandlerContext == Cancellable {
		return a.fail(StageHandler, fmt.Errorf("the message's context has ended: %w", err))
	}
	if a.report.HandlerRuns > 0 && a.content.spoilt() {
		return a.fail(StageHandler, fmt.Errorf("%w: the transaction of its first run was not committed", ErrPayloadChanged))
	}
	h := &holder{inbox: a.inbox, msg: a.msg, row: a.row, tx: a.tx, publish: a.publishFromHandler}
	a.outbox = &outbox{config: &a.inbox.config, tx: a.tx, incoming: a.msg}

	handlerCtx, cancel := a.handlerContext(h)
	produced, err := a.call(handlerCtx, h)
	failure := h.empty()
	timedOut := !a.disarm() // from here on CommitTimeout bounds what is left
	cancel()

	if err := a.judge(timedOut, failure, err); err != nil {
		a.reportLostAck(err)
		return err
	}
	if err := a.checkAcks(); err != nil {
		return err
	}
	if err := a.finishEffect(handlerCtx, produced); err != nil {
		a.reportLostAck(err)
		return err
	}
	if err := a.completeClaim(); err != nil {
		a.reportLostAck(err)
		return err
	}
	return nil
}

// judge says whether the handler's run may be committed.
func (a *attempt) judge(timedOut bool, failure, err error) error {
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
	return nil
}

// reportLostAck says that a message was acked whose effect is not committed: unless another attempt succeeds, it is lost.
func (a *attempt) reportLostAck(err error) {
	if a.acked() {
		a.report.EarlyAck = true
		a.inbox.logger.Error("Message was acked before and its transaction is not committed", err, a.logFields())
	}
}

func (a *attempt) acked() bool {
	select {
	case <-a.msg.Acked():
		return true
	default:
		return false
	}
}

// handlerContext is the context that the handler sees.
func (a *attempt) handlerContext(h *holder) (context.Context, context.CancelFunc) {
	parent := a.entry
	if a.inbox.config.HandlerContext == Detached {
		parent = context.WithoutCancel(parent)
	}
	return context.WithDeadline(context.WithValue(parent, contextKey{}, h), a.deadline)
}

// call runs the handler. Afterwards the message's context ends when it did at entry, and has the values that the handler stored; see leaveContext.
func (a *attempt) call(ctx context.Context, h *holder) ([]*message.Message, error) {
	if a.report.HandlerRuns++; a.report.HandlerRuns > 1 {
		a.content.restore(a.msg)
	}
	a.msg.SetContext(ctx)
	a.refused = false
	defer func() {
		_ = h.empty() // also when the handler panics
		if left := a.msg.Context(); left == ctx {
			a.msg.SetContext(a.entry)
		} else {
			a.msg.SetContext(splitContext{lifetime: a.entry, values: left})
		}
	}()
	produced, err := a.handler(a.msg)
	a.refused = err != nil
	return produced, err
}

// checkAcks looks at what the handler told the broker itself.
func (a *attempt) checkAcks() error {
	select {
	case <-a.msg.Nacked():
		return a.fail(StageHandler, ErrNacked)
	default:
	}
	if !a.acked() {
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
	checker := a.inbox.checker
	if len(produced) == 0 && (checker == nil || checker.CommitReportsLoss() || a.claim != nil) {
		return nil // completeClaim looks for the row of this attempt too
	}
	topic := message.PublishTopicFromCtx(a.entry)
	switch {
	case len(produced) > 0 && a.inbox.config.Outbox == nil:
		return a.fail(StageOutbox, ErrNoOutbox)
	case len(produced) > 0 && topic == "":
		return a.fail(StageOutbox, ErrNoPublishTopic)
	}

	ctx, cancel := context.WithTimeout(a.ctx, a.inbox.config.CommitTimeout)
	defer cancel()
	if err := a.checkTransaction(ctx); err != nil {
		return err
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
		for n := len(produced) - 1; n >= 0; n-- { // backwards, because a message may occur twice
			produced[n].SetContext(own[n])
		}
	}
}

// publishFromHandler serves Inbox.Publisher.
func (a *attempt) publishFromHandler(topic string, msgs message.Messages) error {
	ctx, cancel := context.WithTimeout(a.ctx, a.inbox.config.CommitTimeout)
	defer cancel()
	if err := a.checkTransaction(ctx); err != nil {
		return err
	}
	if err := a.outbox.publish(topic, msgs); err != nil {
		return a.failStatement(StageOutbox, err)
	}
	return nil
}

// checkTransaction fails if the engine has ended the transaction, or the handler has, as far as that can be told.
func (a *attempt) checkTransaction(ctx context.Context) error {
	if err := a.checkNativeStatus(); err != nil {
		return err
	}
	if a.inbox.checker == nil {
		return nil
	}
	found, err := sqltx.QueryRow(ctx, a.tx, a.inbox.checker.TransactionCheckQuery(a.row))
	if err != nil {
		return a.failStatement(StageCheck, err)
	}
	if !found {
		return a.lost(StageCheck, errors.New("the engine rolled it back and the handler returned no error: "+
			"return the errors of all statements"))
	}
	return nil
}
