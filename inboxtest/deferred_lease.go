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

// overrun makes a node whose handler goes on after the end of its message's context, as if nothing had happened. Where there is one writer, it waits before
// the Inbox begins its transaction: during it nobody else could touch the row, and there is nothing to lose. The function begun runs first.
func (f *fixture) overrun(t *testing.T, faults *faultyDB, begun func(), goOn <-chan struct{}) *node {
	t.Helper()
	wait := func(msg *message.Message) {
		begun()
		receive(t, msg.Context().Done(), "the end of the message's context")
		receive(t, goOn, "the test")
	}
	options := nodeOptions{faults: faults, subscriber: deferred.SubscriberConfig{Lease: time.Second}}
	if f.features().ConcurrentWriters {
		return f.newNode(t, options, func(msg *message.Message) error { wait(msg); return nil })
	}
	options.outside = []message.HandlerMiddleware{func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) { wait(msg); return next(msg) }
	}}
	return f.newNode(t, options, nil)
}

func testTakenAway(t *testing.T, f *fixture) {
	started, goOn := make(chan struct{}), make(chan struct{})
	first := f.overrun(t, nil, func() { close(started) }, goOn)
	first.store(t, newMessage("m1"))
	stop := first.start(t)
	receive(t, started, "the handler")
	f.exec(t, "UPDATE inbox_pending SET state = 2, token = token + 1") // as another worker's claim does
	close(goOn)
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
	faults := &faultyDB{begin: func(int64) error {
		if unreachable.Load() {
			return io.ErrUnexpectedEOF
		}
		return nil
	}}
	goOn := make(chan struct{})
	first := f.overrun(t, faults, func() { unreachable.Store(true) }, goOn)
	first.store(t, newMessage("m1"))
	stop := first.start(t)
	second := f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{Lease: time.Second}}, nil)
	second.start(t)
	eventually(t, "the other node to claim the message", func() bool {
		return f.number(t, "SELECT COALESCE(MAX(attempts), 2) FROM inbox_pending") == 2
	})
	close(goOn) // the other node may wait for the first one's identity
	stop()
	f.waitForPending(t, 0)
	f.want(t, rows{biz: 1, inbox: 1})
}
