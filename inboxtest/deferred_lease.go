package inboxtest

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

var leaseCases = []testCase{
	{name: "T31_LongHandlerKeepsItsLease", run: testLongHandler, variants: true},
	{name: "T30_StalledClaimIsFenced", run: testStalledClaim},
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

func testStalledClaim(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{}, nil)
	n.store(t, newMessage("m1"))
	stalled := receive(t, n.subscribe(t), "the message")
	// What a sweep of another process does after the lease, and the claim of that process.
	f.exec(t, "UPDATE inbox_pending SET token = token + 1")
	err := n.handler(stalled)
	wantIs(t, err, inbox.ErrClaimLost)
	if inbox.IsPoison(err) || inbox.IsRetryable(err) {
		t.Fatal("a lost claim is neither poison nor retryable")
	}
	f.want(t, rows{})
	stalled.Nack()
	if err := n.subscriber.Close(); err != nil {
		t.Fatal(err)
	}
	if f.inState(t, deferred.StateClaimed) != 1 {
		t.Fatal("the nack of a stalled claim changed the row")
	}
}
