package inboxtest

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

var subscribeCases = []testCase{
	{name: "T25_FailedEffectRunsAgain", run: testDeferredFailsOnce, variants: true},
	{name: "D2_DeadAtTheLimit", run: testDeadAtTheLimit},
	{name: "D2_PermanentErrorIsDeadAtOnce", run: testPermanentIsDead},
	{name: "D2_PanicIsRecorded", run: testPanicIsRecorded},
	{name: "D2_WithoutInbox", run: testWithoutInbox},
	{name: "D2_DuplicateIsRemoved", run: testDuplicateIsRemoved},
	{name: "D2_OtherConsumerIsRefused", run: testClaimConsumer},
	{name: "D2_ForwardingHandlerIsRefused", run: testForwardingIsRefused},
}

func testDeferredFailsOnce(t *testing.T, f *fixture) {
	failed := false
	n := f.newNode(t, nodeOptions{}, func(msg *message.Message) error {
		if attempt, _ := deferred.Attempt(msg); attempt == 1 {
			failed = true
			return errors.New("not yet")
		}
		return nil
	})
	n.store(t, newMessage("m1"))
	n.start(t)
	f.waitForPending(t, 0)
	f.want(t, rows{biz: 1, inbox: 1})
	if !failed || n.callsOf("m1") != 2 {
		t.Fatalf("handled %d times", n.callsOf("m1"))
	}
}

func testDeadAtTheLimit(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{MaxAttempts: 3}}, func(msg *message.Message) error {
		if msg.UUID == "bad" {
			return errors.New("no such account\x00\xff")
		}
		return nil
	})
	n.store(t, newMessage("bad"), newMessage("good"))
	n.start(t)
	eventually(t, "the message to be dead", func() bool { return f.inState(t, deferred.StateDead) == 1 })
	f.waitForPending(t, 1)
	f.want(t, rows{biz: 1, inbox: 1})
	if got := n.callsOf("bad"); got != 3 {
		t.Fatalf("handled %d times, want 3", got)
	}
	if got := f.text(t, "SELECT last_error FROM inbox_pending"); got != "no such account??" {
		t.Fatalf("last error %q", got)
	}
	if got := f.text(t, "SELECT reason FROM inbox_pending"); got != "attempts exhausted" {
		t.Fatalf("reason %q", got)
	}
}

func testPermanentIsDead(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{}, nil)
	n.store(t, newMessage("m1"))
	// Someone processed the identity with other content meanwhile.
	wantAck(t, f.consumer(t, inbox.Config{}, f.writes).deliver(newMessageWith("m1", "other")))
	n.start(t)
	eventually(t, "the message to be dead", func() bool { return f.inState(t, deferred.StateDead) == 1 })
	f.want(t, rows{biz: 1, inbox: 1})
	if got := n.callsOf("m1"); got != 0 {
		t.Fatalf("handled %d times, want 0", got)
	}
}

func testPanicIsRecorded(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{MaxAttempts: 1}}, func(*message.Message) error { panic("boom") })
	n.store(t, newMessage("m1"))
	n.start(t)
	eventually(t, "the message to be dead", func() bool { return f.inState(t, deferred.StateDead) == 1 })
	f.want(t, rows{})
	if got := f.text(t, "SELECT last_error FROM inbox_pending"); got != "the handler panicked: boom" {
		t.Fatalf("last error %q", got)
	}
}

func testWithoutInbox(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{withoutBox: true, outside: []message.HandlerMiddleware{deferred.RecordError}, subscriber: deferred.SubscriberConfig{MaxAttempts: 2}},
		func(msg *message.Message) error {
			if msg.UUID == "bad" {
				return errors.New("no")
			}
			return nil
		})
	n.store(t, newMessage("good"), newMessage("bad"))
	n.start(t)
	f.waitForPending(t, 1)
	eventually(t, "the message to be dead", func() bool { return f.inState(t, deferred.StateDead) == 1 })
	if got := f.text(t, "SELECT last_error FROM inbox_pending"); got != "no" {
		t.Fatalf("last error %q", got)
	}
	if n.callsOf("good") != 1 || n.callsOf("bad") != 2 {
		t.Fatalf("handled %d and %d times", n.callsOf("good"), n.callsOf("bad"))
	}
}

func testDuplicateIsRemoved(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{}, nil)
	n.store(t, newMessage("m1"))
	wantAck(t, f.consumer(t, inbox.Config{}, f.writes).deliver(newMessage("m1")))
	n.start(t)
	f.waitForPending(t, 0)
	f.want(t, rows{biz: 1, inbox: 1})
	if got := n.callsOf("m1"); got != 0 {
		t.Fatalf("handled %d times, want 0", got)
	}
}

func testClaimConsumer(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{inbox: inbox.Config{Consumer: "mail"}, subscriber: deferred.SubscriberConfig{InitialBackoff: time.Minute, MaxBackoff: time.Minute}}, nil)
	n.store(t, newMessage("m1"))
	msg := receive(t, n.subscribe(t), "the message")
	err := n.handler(msg)
	wantIs(t, err, inbox.ErrClaimConsumer)
	wantText(t, err, `"mail"`, `"billing"`)
	if inbox.IsPoison(err) || inbox.IsRetryable(err) {
		t.Fatal("a mistake in the configuration is neither poison nor retryable")
	}
	msg.Nack()
	eventually(t, "the message to be given back", func() bool { return f.inState(t, deferred.StatePending) == 1 })
	f.want(t, rows{})
}

func testForwardingIsRefused(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{}, nil)
	box := f.newInbox(t, n.pool, inbox.Config{})
	r := newRouter(t, message.RouterConfig{})
	var refused error
	h := r.AddHandler("forward", "in", r.broker, orders, n.receiver, message.PassthroughHandler)
	h.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			refused = err
			return produced, err
		}
	}, box.Middleware)
	r.start(t)
	wantNack(t, r.deliver(t, "in", newMessage("m1")))
	wantIs(t, refused, inbox.ErrForwardsToReceiver)
	f.want(t, rows{})
}
