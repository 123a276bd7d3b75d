package inboxtest

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// These are T04: the handler swallows an error of its statement and returns nil.
var swallowCases = []testCase{
	{name: "T04_SwallowedError", run: swallowedError(nothingOut), variants: true},
	{name: "T04_SwallowedErrorAndProducedMessages", run: swallowedError(returnedOut), variants: true},
	{name: "T04_SwallowedErrorAndPublisher", run: swallowedError(publishedOut), variants: true},
	{name: "T04_SavepointSavesTheTransaction", run: savepointSavesTheTransaction, variants: true},
	{name: "T04_SwallowedDeadlock", run: swallowedDeadlock(nothingOut), variants: true},
	{name: "T04_SwallowedDeadlockAndProducedMessages", run: swallowedDeadlock(returnedOut), variants: true},
	{name: "T04_SwallowedDeadlockAndPublisher", run: swallowedDeadlock(publishedOut), variants: true},
	{name: "T04_AnotherDeliveryAfterASwallowedDeadlock", run: anotherDeliveryAfterDeadlock(nothingOut), variants: true},
	{name: "T04_AnotherDeliveryAfterASwallowedDeadlockAndProducedMessages", run: anotherDeliveryAfterDeadlock(returnedOut), variants: true},
	{name: "T04_AnotherDeliveryAfterASwallowedDeadlockAndPublisher", run: anotherDeliveryAfterDeadlock(publishedOut), variants: true},
	{name: "T04_ReturnedDeadlockIsRetried", run: returnedDeadlockIsRetried, variants: true},
}

// outgoingBy is the way in which a handler produces its outgoing message.
type outgoingBy int

const (
	nothingOut outgoingBy = iota
	returnedOut
	publishedOut
)

// String names the subtest.
func (by outgoingBy) String() string {
	return [...]string{"nothing out", "returned", "published"}[by]
}

// send produces one message and, when it publishes, swallows the error, as the handlers of these tests do with every error.
func (by outgoingBy) send(ctx context.Context, box *inbox.Inbox) ([]*message.Message, error) {
	switch by {
	case returnedOut:
		return []*message.Message{newMessage("out")}, nil
	case publishedOut:
		_ = publish(ctx, box, "out")
	}
	return nil, nil
}

// rows are what the tables have after one handled message.
func (by outgoingBy) rows() rows {
	if by == nothingOut {
		return rows{biz: 1, inbox: 1}
	}
	return rows{biz: 1, inbox: 1, outbox: 1}
}

func swallowedError(by outgoingBy) func(t *testing.T, f *fixture) {
	return func(t *testing.T, f *fixture) {
		var s *service
		s = f.service(t, serviceOptions{}, func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			if err := f.write(ctx, msg.UUID, 1); err != nil {
				return nil, err
			}
			if s.calls.Load() == 1 {
				if err := f.execInTx(ctx, "INSERT INTO counter (id, n) VALUES (1, 1)"); err == nil {
					t.Error("the second row of the same key is not refused")
				}
			}
			return by.send(ctx, s.inbox)
		})
		d := s.deliver(t, newMessage("m1"))
		if !f.features().SwallowedErrorAborts {
			wantAck(t, d) // only the statement failed
			f.want(t, by.rows())
			return
		}
		wantLost(t, d)
		f.want(t, rows{})
		wantAck(t, s.deliver(t, newMessage("m1")))
		s.wantCalls(t, 2)
		f.want(t, by.rows())
	}
}

// wantLost stops the test unless the delivery failed because its transaction was gone.
func wantLost(t *testing.T, d delivery) {
	t.Helper()
	wantNack(t, d)
	if !errors.Is(d.err, inbox.ErrTransactionLost) || inbox.IsPoison(d.err) {
		t.Fatalf("want ErrTransactionLost, not poison; got poison %t, %v", inbox.IsPoison(d.err), d.err)
	}
}

func savepointSavesTheTransaction(t *testing.T, f *fixture) {
	c := f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		if err := errors.Join(f.write(ctx, msg.UUID, 1), f.execInTx(ctx, "SAVEPOINT risky")); err != nil {
			return nil, err
		}
		if err := f.execInTx(ctx, "INSERT INTO counter (id, n) VALUES (1, 1)"); err == nil {
			t.Error("the second row of the same key is not refused")
		}
		return nil, f.execInTx(ctx, "ROLLBACK TO SAVEPOINT risky")
	})
	wantAck(t, c.deliver(newMessage("m1")))
	f.want(t, rows{biz: 1, inbox: 1})
}

func swallowedDeadlock(by outgoingBy) func(t *testing.T, f *fixture) {
	return func(t *testing.T, f *fixture) {
		f.needsDeadlocks(t)
		if f.features().SwallowedErrorAborts {
			t.Skip("a swallowed deadlock is like any other swallowed error")
		}
		var s *service
		s = f.service(t, serviceOptions{}, func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			_ = f.loseDeadlock(t, ctx)
			_ = f.write(ctx, msg.UUID, 1)
			return by.send(ctx, s.inbox)
		})
		wantLost(t, s.deliver(t, newMessage("m1")))
		f.wantOnlySwallowedRows(t, rows{})
	}
}

// wantOnlySwallowedRows allows the row that a handler wrote after the engine had ended its transaction. It may stay where autocommit is on: that is a
// stated limit.
func (f *fixture) wantOnlySwallowedRows(t *testing.T, want rows) {
	t.Helper()
	if f.features().EngineEndsTransactionOnDeadlock && !f.features().AutocommitOff {
		want.biz = f.biz(t)
	}
	f.want(t, want)
}

// anotherDeliveryAfterDeadlock lets another delivery of the same message commit between the end of the first one's transaction and the end of
// its handler. The row of the identity is there then, but it is not the first one's.
func anotherDeliveryAfterDeadlock(by outgoingBy) func(t *testing.T, f *fixture) {
	return func(t *testing.T, f *fixture) {
		f.needsDeadlocks(t)
		if f.features().SwallowedErrorAborts {
			t.Skip("the transaction keeps the identity locked until the handler returns")
		}
		var first, second *service
		second = f.service(t, serviceOptions{}, func(msg *message.Message) ([]*message.Message, error) {
			if err := f.write(msg.Context(), msg.UUID, 2); err != nil {
				return nil, err
			}
			return by.send(msg.Context(), second.inbox)
		})
		first = f.service(t, serviceOptions{}, func(msg *message.Message) ([]*message.Message, error) {
			_ = f.loseDeadlock(t, msg.Context())
			d := deliverElsewhere(t, second, newMessage("m1"))
			if !d.acked {
				t.Errorf("the other delivery: %v", d)
			}
			return by.send(msg.Context(), first.inbox)
		})

		wantLost(t, first.deliver(t, newMessage("m1")))
		f.want(t, by.rows())
		wantAck(t, first.deliver(t, newMessage("m1")))
		first.wantCalls(t, 1)
		f.want(t, by.rows())
	}
}

// deliverElsewhere is for handlers, where a test must not be stopped.
func deliverElsewhere(t *testing.T, s *service, msg *message.Message) delivery {
	s.broker.send(incoming, msg)
	select {
	case <-msg.Acked():
		return delivery{acked: true}
	case d := <-s.finished:
		d.acked = d.err == nil && !d.exited
		return d
	}
}

func returnedDeadlockIsRetried(t *testing.T, f *fixture) {
	f.needsDeadlocks(t)
	var s *service
	s = f.service(t, serviceOptions{}, func(msg *message.Message) ([]*message.Message, error) {
		if err := f.write(msg.Context(), msg.UUID, 1); err != nil {
			return nil, err
		}
		if s.calls.Load() == 1 {
			return nil, f.loseDeadlock(t, msg.Context())
		}
		return []*message.Message{newMessage("out")}, nil
	})
	wantAck(t, s.deliver(t, newMessage("m1")))
	s.wantCalls(t, 2)
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
	if got := s.reports.last(); got.Conflicts != 1 || got.HandlerRuns != 2 || got.Outcome != inbox.Processed {
		t.Fatalf("report: %+v, want one conflict, two runs and the outcome processed", got)
	}
}
