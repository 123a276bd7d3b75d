package inboxtest

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watermill-inbox/inbox"
)

// These are I8: COMMIT gets no clear answer.
var commitCases = []testCase{
	{name: "T01_AnswerLostAfterCommit", run: answerLost},
	{name: "T01_RequestLostBeforeCommit", run: requestLost},
	{name: "T01_ManyUncertainCommits", run: manyUncertainCommits},
	{name: "T01_OutOfTimeAfterCommit", run: outOfTime(lostAnswer, 1)},
	{name: "T01_OutOfTimeBeforeCommit", run: outOfTime(lostRequest, 2)},
	{name: "T01_MessageEndsBeforeResolution", run: messageEndsBeforeResolution},
	{name: "T01_AnotherCommitsInTheMeantime", run: anotherCommitsInTheMeantime},
	{name: "I8_CommitHangsAfterItHappened", run: commitHangs},
	{name: "I8_TransactionInDoubtCommitsLate", run: inDoubtEndsLate(true)},
	{name: "I8_TransactionInDoubtRollsBackLate", run: inDoubtEndsLate(false)},
	{name: "I8_TransactionInDoubtDoesNotEnd", run: inDoubtDoesNotEnd},
	{name: "I8_RollbackHangs", run: rollbackHangs},
}

// first does something to the first COMMIT and leaves the others alone.
func first(t *testing.T, fault func(t *testing.T, tx ending) error) func(context.Context, int64, ending) error {
	return func(_ context.Context, n int64, tx ending) error {
		if n == 1 {
			return fault(t, tx)
		}
		return tx.commit()
	}
}

// uncertain is what a report says about COMMITs without an answer: how many, and what became of them.
type uncertain struct{ commits, committed, rolledBack int }

func (r *reports) wantLast(t *testing.T, outcome inbox.Outcome, handlerRuns int, want uncertain) {
	t.Helper()
	last := r.last()
	got := uncertain{last.UncertainCommits, last.ResolvedCommitted, last.ResolvedRolledBack}
	if last.Outcome != outcome || last.HandlerRuns != handlerRuns || got != want || (last.Err == nil) != (outcome != 0) {
		t.Fatalf("report: %+v, want outcome %s, %d runs and %+v", last, outcome, handlerRuns, want)
	}
}

func answerLost(t *testing.T, f *fixture) {
	seen := &reports{}
	c := f.faultyConsumer(t, &faultyDB{commit: first(t, lostAnswer)}, inbox.Config{Observer: seen})
	wantAck(t, c.deliver(newMessage("m1")))
	c.wantCalls(t, 1)
	seen.wantLast(t, inbox.Processed, 1, uncertain{commits: 1, committed: 1})
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
}

func requestLost(t *testing.T, f *fixture) {
	seen := &reports{}
	c := f.faultyConsumer(t, &faultyDB{commit: first(t, lostRequest)}, inbox.Config{Observer: seen})
	wantAck(t, c.deliver(newMessage("m1")))
	c.wantCalls(t, 2)
	seen.wantLast(t, inbox.Processed, 2, uncertain{commits: 1, rolledBack: 1})
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
}

func manyUncertainCommits(t *testing.T, f *fixture) {
	db := &faultyDB{commit: func(_ context.Context, n int64, tx ending) error {
		switch {
		case n <= 2:
			return lostRequest(t, tx)
		case n == 3:
			return lostAnswer(t, tx)
		}
		return tx.commit()
	}}
	seen := &reports{}
	c := f.faultyConsumer(t, db, inbox.Config{Observer: seen})
	wantAck(t, c.deliver(newMessage("m1")))
	c.wantCalls(t, 3)
	seen.wantLast(t, inbox.Processed, 3, uncertain{commits: 3, committed: 1, rolledBack: 2})
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
}

// outOfTime keeps the database away until the resolution has given up. The redelivery then finds out.
func outOfTime(fault func(*testing.T, ending) error, wantCalls int64) func(t *testing.T, f *fixture) {
	return func(t *testing.T, f *fixture) {
		var away atomic.Bool
		db := &faultyDB{begin: func(int64) error {
			if away.Load() {
				return io.ErrUnexpectedEOF
			}
			return nil
		}}
		db.commit = first(t, func(t *testing.T, tx ending) error {
			away.Store(true)
			return fault(t, tx)
		})
		seen := &reports{}
		c := f.faultyConsumer(t, db, inbox.Config{ResolveTimeout: 200 * time.Millisecond, Observer: seen})

		wantUncertain(t, c.deliver(newMessage("m1")))
		c.wantCalls(t, 1)
		seen.wantLast(t, 0, 1, uncertain{commits: 1})

		away.Store(false)
		wantAck(t, c.deliver(newMessage("m1")))
		c.wantCalls(t, wantCalls)
		f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
	}
}

// wantUncertain stops the test unless the delivery failed because the outcome of its commit could not be found out.
func wantUncertain(t *testing.T, d delivery) {
	t.Helper()
	wantNack(t, d)
	if !errors.Is(d.err, inbox.ErrCommitUncertain) || inbox.IsPoison(d.err) || !inbox.IsRetryable(d.err) {
		t.Fatalf("want ErrCommitUncertain, retryable and not poison; got retryable %t, poison %t, %v",
			inbox.IsRetryable(d.err), inbox.IsPoison(d.err), d.err)
	}
}

// messageEndsBeforeResolution cancels the message in its COMMIT: no new attempt may start then, and nothing may be guessed.
func messageEndsBeforeResolution(t *testing.T, f *fixture) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db := &faultyDB{commit: first(t, func(t *testing.T, tx ending) error {
		defer cancel()
		return lostAnswer(t, tx)
	})}
	c := f.faultyConsumer(t, db, inbox.Config{})
	msg := newMessage("m1")
	msg.SetContext(ctx)
	wantUncertainNack(t, c.deliver(msg))
	if n := db.begins.Load(); n != 1 {
		t.Fatalf("%d transactions began, want 1", n)
	}
	wantAck(t, c.deliver(newMessage("m1")))
	c.wantCalls(t, 1)
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
}

// wantUncertainNack says nothing about a retry, which is useless for a message whose context has ended.
func wantUncertainNack(t *testing.T, d delivery) {
	t.Helper()
	wantNack(t, d)
	if !errors.Is(d.err, inbox.ErrCommitUncertain) || inbox.IsPoison(d.err) {
		t.Fatalf("want ErrCommitUncertain, not poison; got poison %t, %v", inbox.IsPoison(d.err), d.err)
	}
}

// anotherCommitsInTheMeantime lets another delivery of the same id but with other content commit before the resolution. That row is no evidence that
// this message was committed.
func anotherCommitsInTheMeantime(t *testing.T, f *fixture) {
	other := f.consumer(t, inbox.Config{}, f.writes)
	db := &faultyDB{commit: first(t, func(t *testing.T, tx ending) error {
		err := lostRequest(t, tx)
		if d := other.deliver(newMessageWith("m1", `{"other":1}`)); !d.acked {
			t.Errorf("the other delivery: %v", d)
		}
		return err
	})}
	seen := &reports{}
	c := f.faultyConsumer(t, db, inbox.Config{Observer: seen})
	d := c.deliver(newMessage("m1"))
	wantNack(t, d)
	seen.wantLast(t, 0, 1, uncertain{commits: 1, rolledBack: 1})
	if mismatch := (*inbox.MismatchError)(nil); !errors.As(d.err, &mismatch) || !inbox.IsPoison(d.err) {
		t.Fatalf("want a MismatchError, which is poison; got %v", d.err)
	}
	c.wantCalls(t, 1)
	f.want(t, rows{biz: 1, inbox: 1})
}

// hang returns a hook that does before, and then does not return until the test ends it or, with drivers that look at it, ctx ends.
func hang(before func(tx ending) error, released <-chan struct{}) func(context.Context, ending) error {
	return func(ctx context.Context, tx ending) error {
		err := before(tx)
		select {
		case <-released:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wantAbandoned stops the test unless the inbox counts the statements that still run. With pgx none do: it stops waiting when the context ends.
func (f *fixture) wantAbandoned(t *testing.T, box *inbox.Inbox, running int64, release func()) {
	t.Helper()
	if f.features().Native {
		running = 0
	}
	if got := box.AbandonedStatements(); got != running {
		t.Fatalf("%d abandoned statements, want %d", got, running)
	}
	release()
	eventually(t, "the abandoned statements to end", func() bool { return box.AbandonedStatements() == 0 })
}

func commitHangs(t *testing.T, f *fixture) {
	released := make(chan struct{})
	hanging := hang(func(tx ending) error { return tx.commit() }, released)
	db := &faultyDB{commit: func(ctx context.Context, n int64, tx ending) error {
		if n == 1 {
			return hanging(ctx, tx)
		}
		return tx.commit()
	}}
	c := f.faultyConsumer(t, db, inbox.Config{CommitTimeout: time.Second})
	wantAck(t, c.deliver(newMessage("m1")))
	c.wantCalls(t, 1)
	f.wantAbandoned(t, c.inbox, 1, func() { close(released) })
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
}

func rollbackHangs(t *testing.T, f *fixture) {
	released := make(chan struct{})
	hanging := hang(func(tx ending) error { return tx.rollback() }, released)
	db := &faultyDB{rollback: func(ctx context.Context, _ int64, tx ending) error { return hanging(ctx, tx) }}
	c := f.faultyConsumer(t, db, inbox.Config{
		CommitTimeout: 300 * time.Millisecond,
		Outbox:        failingOutbox,
	})
	start := time.Now()
	d := c.deliver(newMessage("m1"))
	wantNack(t, d)
	wantIs(t, d.err, errWanted)
	if took := time.Since(start); took > patience/2 {
		t.Fatalf("the delivery took %s", took)
	}
	f.wantAbandoned(t, c.inbox, 1, func() { close(released) })
	f.want(t, rows{})
}
