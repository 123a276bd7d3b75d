package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

var transactionCases = []testCase{
	{name: "T05_PanicWithOneConnection", run: panicWithOneConnection, variants: true},
	{name: "T05_GoexitWithOneConnection", run: goexitWithOneConnection, variants: true},
	{name: "T05_PanicAndGoexitInTheRouter", run: panicAndGoexitInTheRouter},
	{name: "T06_OneConnection", run: oneConnection, variants: true},
	{name: "T06_OnMismatchMayUseTheOneConnection", run: onMismatchMayUseTheOneConnection},
	{name: "T08_ContextEndsAfterCommit", run: contextEndsAfterCommit},
	{name: "I1_TxTimeoutAndAHandlerThatIgnoresIt", run: handlerIgnoresTxTimeout, variants: true},
	{name: "I1_CancellableHandler", run: cancellableHandler},
	{name: "I1_DetachedHandler", run: detachedHandler},
	{name: "T42_DDLThenFailure", run: ddlThenFailure, variants: true},
	{name: "T42_DDLThenSuccess", run: ddlThenSuccess, variants: true},
}

// oneThatBreaks is a consumer with one connection whose first run writes and then breaks. What the first run leaves, the second message must
// not wait for.
func (f *fixture) oneThatBreaks(t *testing.T, breaks func()) (*consumer, Pool) {
	t.Helper()
	pool := f.pool(t, 1)
	var c *consumer
	c = f.consumerOn(t, pool, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		if err := f.write(msg.Context(), msg.UUID, 1); err != nil {
			return nil, err
		}
		if c.calls.Load() == 1 {
			breaks()
		}
		return nil, nil
	})
	return c, pool
}

func panicWithOneConnection(t *testing.T, f *fixture) {
	c, pool := f.oneThatBreaks(t, func() { panic("the text of the panic") })
	d := c.deliver(newMessage("m1"))
	wantNack(t, d)
	if d.panic != "the text of the panic" {
		t.Fatalf("the panic became %v", d.panic)
	}
	f.wantNothingLeft(t, c, pool)
}

func goexitWithOneConnection(t *testing.T, f *fixture) {
	c, pool := f.oneThatBreaks(t, runtime.Goexit)
	d := c.deliver(newMessage("m1"))
	if !d.exited {
		t.Fatalf("runtime.Goexit was held up: %v", d)
	}
	wantNack(t, d)
	f.wantNothingLeft(t, c, pool)
}

func (f *fixture) wantNothingLeft(t *testing.T, c *consumer, pool Pool) {
	t.Helper()
	if n := pool.InUse(); n != 0 {
		t.Fatalf("%d connections are in use after the handler broke", n)
	}
	f.want(t, rows{})
	wantAck(t, c.deliver(newMessage("m2")))
	wantAck(t, c.deliver(newMessage("m1")))
	f.want(t, rows{biz: 2, inbox: 2})
}

// panicAndGoexitInTheRouter shows that the Router nacks, for whom a Goexit looks like nothing at all.
func panicAndGoexitInTheRouter(t *testing.T, f *fixture) {
	breaks := []func(){func() { panic("in the Router") }, runtime.Goexit, func() {}}
	var s *service
	s = f.service(t, serviceOptions{pool: f.pool(t, 1)}, func(msg *message.Message) ([]*message.Message, error) {
		if err := f.write(msg.Context(), msg.UUID, 1); err != nil {
			return nil, err
		}
		breaks[s.calls.Load()-1]()
		return []*message.Message{newMessage("out")}, nil
	})
	for range 2 {
		wantNack(t, s.deliver(t, newMessage("m1")))
		f.want(t, rows{})
	}
	wantAck(t, s.deliver(t, newMessage("m1")))
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
}

// oneConnection is T06 with all that an inbox does beside the handler: identities that are there, outgoing messages in both ways, reports.
func oneConnection(t *testing.T, f *fixture) {
	var s *service
	s = f.service(t, serviceOptions{pool: f.pool(t, 1)}, func(msg *message.Message) ([]*message.Message, error) {
		if err := f.write(msg.Context(), msg.UUID, 1); err != nil {
			return nil, err
		}
		return []*message.Message{newMessage("returned by " + msg.UUID)}, publish(msg.Context(), s.inbox, "published by "+msg.UUID)
	})
	var msgs []*message.Message
	for n := range 10 {
		msgs = append(msgs, copies(2, fmt.Sprintf("m%d", n))...)
	}
	for _, msg := range msgs {
		s.broker.send(incoming, msg)
	}
	for range msgs {
		if d := receive(t, s.finished, "a delivery"); d.err != nil {
			t.Fatalf("delivery: %v", d.err)
		}
	}
	for _, msg := range msgs {
		receive(t, msg.Acked(), "the ack")
	}
	s.wantCalls(t, 10)
	f.want(t, rows{biz: 10, inbox: 10, outbox: 20})
}

func onMismatchMayUseTheOneConnection(t *testing.T, f *fixture) {
	pool := f.pool(t, 1)
	asked := 0
	c := f.consumerOn(t, pool, inbox.Config{OnMismatch: func(msg *message.Message, mismatch *inbox.MismatchError) error {
		asked++
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		tx, err := pool.DB.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return errors.Join(mismatch, tx.Rollback())
	}}, f.writes)
	wantAck(t, c.deliver(newMessage("m1")))
	d := c.deliver(newMessageWith("m1", `{"other":1}`))
	wantNack(t, d)
	if mismatch := (*inbox.MismatchError)(nil); !errors.As(d.err, &mismatch) || asked != 1 || errors.Is(d.err, context.DeadlineExceeded) {
		t.Fatalf("OnMismatch ran %d times, error %v", asked, d.err)
	}
	f.want(t, rows{biz: 1, inbox: 1})
}

func contextEndsAfterCommit(t *testing.T, f *fixture) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	db := &faultyDB{commit: func(_ context.Context, _ int64, tx ending) error {
		defer cancel()
		return tx.commit()
	}}
	c := f.faultyConsumer(t, db, inbox.Config{})
	msg := newMessage("m1")
	msg.SetContext(ctx)
	wantAck(t, c.deliver(msg))
	if ctx.Err() == nil {
		t.Fatal("the context did not end in the commit, so the test shows nothing")
	}
	c.wantCalls(t, 1)
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
}

// handlerIgnoresTxTimeout goes on after the time of its attempt, as long as it takes to see that nothing of what it writes stays.
func handlerIgnoresTxTimeout(t *testing.T, f *fixture) {
	pool := f.pool(t, 1)
	var c *consumer
	c = f.consumerOn(t, pool, inbox.Config{TxTimeout: 300 * time.Millisecond}, func(msg *message.Message) ([]*message.Message, error) {
		late := c.calls.Load() == 1
		if err := f.write(msg.Context(), msg.UUID, 1); err != nil || !late {
			return nil, err
		}
		<-msg.Context().Done()
		after := context.WithoutCancel(msg.Context())
		eventually(t, "the transaction to refuse what its late handler writes", func() bool { return f.write(after, msg.UUID, 2) != nil })
		f.waitForNoTransaction(t, "the transaction to end although its handler still runs")
		_ = f.write(after, msg.UUID, 3)
		return nil, nil
	})
	d := c.deliver(newMessage("m1"))
	wantNack(t, d)
	if !errors.Is(d.err, context.DeadlineExceeded) || inbox.IsPoison(d.err) {
		t.Fatalf("want DeadlineExceeded, not poison; got poison %t, %v", inbox.IsPoison(d.err), d.err)
	}
	f.want(t, rows{})
	// The pool makes a new connection for it, which on a loaded machine may take longer than TxTimeout.
	eventually(t, "a message to be acked", func() bool { return c.deliver(newMessage("m2")).acked })
	f.want(t, rows{biz: 1, inbox: 1})
}

// deliverAndCancel delivers a message whose context ends while its handler runs, and returns what the handler saw of its own context.
func (f *fixture) deliverAndCancel(t *testing.T, config inbox.Config) (seen error) {
	t.Helper()
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "kept"))
	defer cancel()
	c := f.consumer(t, config, func(msg *message.Message) ([]*message.Message, error) {
		if err := f.write(msg.Context(), msg.UUID, 1); err != nil {
			return nil, err
		}
		cancel()
		seen = msg.Context().Err()
		if msg.Context().Value(key{}) != "kept" {
			t.Error("the handler's context lost a value of the message's")
		}
		if config.HandlerContext == inbox.Detached {
			return nil, f.write(msg.Context(), msg.UUID, 2)
		}
		return nil, nil
	})
	msg := newMessage("m1")
	msg.SetContext(ctx)
	wantAck(t, c.deliver(msg))
	if msg.Context().Err() == nil {
		t.Error("the message's context is not the one that has ended")
	}
	c.wantCalls(t, 1)
	return seen
}

func cancellableHandler(t *testing.T, f *fixture) {
	if seen := f.deliverAndCancel(t, inbox.Config{}); !errors.Is(seen, context.Canceled) {
		t.Fatalf("the handler's context did not end with the message's: %v", seen)
	}
	f.want(t, rows{biz: 1, inbox: 1})
}

func detachedHandler(t *testing.T, f *fixture) {
	if seen := f.deliverAndCancel(t, inbox.Config{HandlerContext: inbox.Detached}); seen != nil {
		t.Fatalf("the handler's context ended with the message's: %v", seen)
	}
	f.want(t, rows{biz: 2, inbox: 1})
}

// writesAroundDDL writes one row before a DDL statement and one after it.
func (f *fixture) writesAroundDDL(msg *message.Message) error {
	ctx := msg.Context()
	return errors.Join(f.write(ctx, msg.UUID, 1), f.execInTx(ctx, "CREATE TABLE made_by_handler (id INTEGER)"), f.write(ctx, msg.UUID, 2))
}

func ddlThenFailure(t *testing.T, f *fixture) {
	c := f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		return nil, errors.Join(f.writesAroundDDL(msg), errWanted)
	})
	d := c.deliver(newMessage("m1"))
	wantNack(t, d)
	if !errors.Is(d.err, errWanted) {
		t.Fatalf("want the handler's error, got %v", d.err)
	}
	if !f.features().DDLCommits {
		f.want(t, rows{})
		return
	}
	// The stated limit: what the DDL committed stays, and a repetition counts as a duplicate. So a retry would be useless, and the error says why.
	wantText(t, d.err, "committed the transaction", `"m1"`)
	if inbox.IsRetryable(d.err) || !inbox.IsPoison(d.err) {
		t.Fatalf("retryable %t, poison %t: %v", inbox.IsRetryable(d.err), inbox.IsPoison(d.err), d.err)
	}
	want := rows{biz: 2, inbox: 1}
	if f.features().AutocommitOff {
		want.biz = 1
	}
	f.want(t, want)
}

func ddlThenSuccess(t *testing.T, f *fixture) {
	s := f.service(t, serviceOptions{}, func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{newMessage("out")}, f.writesAroundDDL(msg)
	})
	wantAck(t, s.deliver(t, newMessage("m1")))
	f.want(t, rows{biz: 2, inbox: 1, outbox: 1})
	wantAck(t, s.deliver(t, newMessage("m1")))
	s.wantCalls(t, 1)
	f.want(t, rows{biz: 2, inbox: 1, outbox: 1})
}
