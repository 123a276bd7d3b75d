package inboxtest

import (
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/deferred"
)

var leaseCases = []testCase{
	{name: "T31_LongHandlerKeepsItsLease", run: testLongHandler, variants: true},
	{name: "T31_TakenAwayLeaseEndsTheHandler", run: testTakenAway},
	{name: "T31_FailingRenewalEndsTheHandler", run: testFailingRenewal},
}

func testLongHandler(t *testing.T, f *fixture) {
	options := nodeOptions{subscriber: deferred.SubscriberConfig{Lease: time.Second}}
	handler := func(*message.Message) error { time.Sleep(3500 * time.Millisecond); return nil }
	first, second := f.newNode(t, options, handler), f.newNode(t, options, handler)
	first.start(t)
	second.start(t)
	first.store(t, newMessage("m1"))
	f.waitForPending(t, 0)
	f.want(t, rows{biz: 1, inbox: 1})
	if calls := first.callsOf("m1") + second.callsOf("m1"); calls != 1 {
		t.Fatalf("handled %d times, want 1", calls)
	}
}

// overrun is a handler that goes on after the end of its message's context, as if nothing had happened.
type overrun struct {
	started, ended chan struct{} // ended: the context
	goOn           chan struct{}
}

func newOverrun() *overrun {
	return &overrun{make(chan struct{}, 100), make(chan struct{}, 100), make(chan struct{})}
}

func (o *overrun) wait(msg *message.Message) {
	o.started <- struct{}{}
	<-msg.Context().Done()
	o.ended <- struct{}{}
	<-o.goOn
}

// node makes a node with that handler. Where there is one writer, it waits before the Inbox begins its transaction: during it nobody else could touch
// the row, and there is nothing to lose.
func (o *overrun) node(t *testing.T, f *fixture, faults *faultyDB) *node {
	t.Helper()
	return o.nodeWith(t, f, nodeOptions{faults: faults, subscriber: deferred.SubscriberConfig{Lease: time.Second}})
}

func (o *overrun) nodeWith(t *testing.T, f *fixture, options nodeOptions) *node {
	t.Helper()
	if f.features().ConcurrentWriters {
		return f.newNode(t, options, func(msg *message.Message) error { o.wait(msg); return nil })
	}
	options.outside = []message.HandlerMiddleware{func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { o.wait(msg); return next(msg) }
	}}
	return f.newNode(t, options, nil)
}

func testTakenAway(t *testing.T, f *fixture) {
	handler := newOverrun()
	first := handler.node(t, f, nil)
	first.store(t, newMessage("m1"))
	stop := first.start(t)
	receive(t, handler.started, "the handler")
	f.exec(t, "UPDATE inbox_pending SET token = token + 1") // as another worker's claim does
	receive(t, handler.ended, "the end of the message's context")
	close(handler.goOn)
	stop()
	f.want(t, rows{})
	if f.inState(t, deferred.StateClaimed) != 1 {
		t.Fatal("the end of a lost claim changed the row")
	}
	f.exec(t, "UPDATE inbox_pending SET due_at = 0") // that worker disappears
	second := f.newNode(t, nodeOptions{}, nil)
	second.start(t)
	f.waitForPending(t, 0)
	f.want(t, rows{biz: 1, inbox: 1})
}

func testFailingRenewal(t *testing.T, f *fixture) {
	var unreachable atomic.Bool
	handler := newOverrun()
	first := handler.node(t, f, &faultyDB{begin: func(int64) error {
		if unreachable.Load() {
			return io.ErrUnexpectedEOF
		}
		return nil
	}})
	first.store(t, newMessage("m1"))
	stop := first.start(t)
	receive(t, handler.started, "the handler")
	unreachable.Store(true)
	receive(t, handler.ended, "the end of the message's context")
	second := f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{Lease: time.Second}}, nil)
	second.start(t)
	eventually(t, "the other node to claim the message", func() bool {
		return f.number(t, "SELECT COALESCE(MAX(attempts), 2) FROM inbox_pending") == 2
	})
	close(handler.goOn) // the other node may wait for the first one's identity
	stop()
	f.waitForPending(t, 0)
	f.want(t, rows{biz: 1, inbox: 1})
}
