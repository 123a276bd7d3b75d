package inboxtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/deferred"
)

var closeCases = []testCase{
	{name: "T33_CloseWaitsForASlowHandler", run: func(t *testing.T, f *fixture) { testCloseWhileHandling(t, f, false) }},
	{name: "T33_CloseWaitsForASlowHandlerWithoutInbox", run: func(t *testing.T, f *fixture) { testCloseWhileHandling(t, f, true) }},
	{name: "T33_CloseReleasesWhatHasNotBegun", run: testCloseReleases},
	{name: "T33_CloseTimeoutReleasesTheRest", run: testCloseTimeout},
}

// testCloseWhileHandling: the handler ignores its context and takes several leases, while another node looks for lost ones.
func testCloseWhileHandling(t *testing.T, f *fixture, withoutBox bool) {
	started := make(chan struct{}, 100)
	options := nodeOptions{withoutBox: withoutBox, subscriber: deferred.SubscriberConfig{Lease: time.Second}}
	first := f.newNode(t, options, func(msg *message.Message) error {
		started <- struct{}{}
		<-msg.Context().Done()
		time.Sleep(2500 * time.Millisecond)
		return nil
	})
	second := f.newNode(t, options, nil)
	first.store(t, newMessage("m1"))
	stop := first.start(t)
	receive(t, started, "the handler")
	second.start(t)
	stop()
	if got := f.pending(t); got != 0 {
		t.Fatalf("%d rows pending after Close, want 0", got)
	}
	wantCalls(t, "m1", 1, first)
	wantCalls(t, "m1", 0, second)
	if !withoutBox {
		f.want(t, rows{biz: 1, inbox: 1})
	}
}

// testCloseReleases: one message is with a handler, the others are claimed and wait for one.
func testCloseReleases(t *testing.T, f *fixture) {
	const total = 5
	first, second := f.newNode(t, nodeOptions{}, nil), f.newNode(t, nodeOptions{}, nil)
	for i := range total {
		first.store(t, newMessage(fmt.Sprint(i)))
	}
	messages := first.subscribe(t)
	held := 0
	if f.features().ConcurrentWriters { // else only one message is claimed at a time
		slow := receive(t, messages, "a message")
		held = 1
		defer slow.Ack()
	}
	f.waitForState(t, deferred.StateClaimed, map[int]int{0: 1, 1: total}[held])
	closed := make(chan error, 1)
	go func() { closed <- first.subscriber.Close() }()
	f.waitForState(t, deferred.StateClaimed, held)
	if got := f.number(t, "SELECT COUNT(*) FROM inbox_pending WHERE state = 0 AND attempts = 0"); got != total-held {
		t.Fatalf("%d messages are available and have no attempt, want %d", got, total-held)
	}
	second.start(t)
	f.waitForPending(t, held)
	f.want(t, rows{biz: total - held, inbox: total - held})
	select {
	case err := <-closed:
		if held > 0 {
			t.Fatalf("Close returned although a handler has a message: %v", err)
		}
	default:
	}
}

// testCloseTimeout: a handler that does not end costs its message no attempt.
func testCloseTimeout(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{CloseTimeout: 50 * time.Millisecond}}, nil)
	n.store(t, newMessage("m1"))
	msg := receive(t, n.subscribe(t), "the message")
	n.close(t)
	if msg.Context().Err() == nil {
		t.Fatal("the message's context goes on after Close")
	}
	if got := f.number(t, "SELECT COUNT(*) FROM inbox_pending WHERE state = 0 AND attempts = 0"); got != 1 {
		t.Fatal("the message is not available again, or its attempt counted")
	}
}
