package inboxtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

// These are T30: what a claim may still do when another worker has the message. The leases are long, so that no renewal notices it and only the
// conditions in the statements are left.
var fenceCases = []testCase{
	{name: "T30_StalledClaimCannotComplete", run: testStalledCompletes, variants: true},
	{name: "T30_StalledClaimCannotRemove", run: stalledCase(nodeOptions{withoutBox: true}, func(_ *node, msg *message.Message) { msg.Ack() }), variants: true},
	{name: "T30_StalledClaimCannotFail", run: stalledCase(nodeOptions{}, func(_ *node, msg *message.Message) { msg.Nack() }), variants: true},
	{name: "T30_StalledClaimCannotKill", run: stalledCase(
		nodeOptions{subscriber: deferred.SubscriberConfig{MaxAttempts: 1}}, func(_ *node, msg *message.Message) { msg.Nack() }), variants: true},
	{name: "T30_StalledClaimCannotRelease", run: stalledCase(nodeOptions{subscriber: deferred.SubscriberConfig{CloseTimeout: 20 * time.Millisecond}}, nil), variants: true},
	{name: "T30_StalledClaimCannotRenew", run: testStalledRenews, variants: true},
}

// fenceLease is the lease of a stalled claim: on the slowest machine no test takes a third of it, after which a renewal would notice.
const fenceLease = 10 * time.Minute

// hold makes the node claim the only message there is. The first round of what renews leases is over when a lost claim is found; the next comes a third
// of the lease later.
func (n *node) hold(t *testing.T) *message.Message {
	t.Helper()
	n.store(t, newMessage("lost"))
	n.exec(t, "UPDATE inbox_pending SET state = 2, token = 7, attempts = 1000, due_at = 0")
	messages := n.sweepOnce(t)
	n.exec(t, "DELETE FROM inbox_pending")
	n.store(t, newMessage("m1"))
	return receive(t, messages, "the message")
}

// sweepOnce subscribes until a first sweep has found the lost claim: it leaves out a row that is locked at that moment, on MariaDB also by a claim that
// only looks at its neighbour.
func (n *node) sweepOnce(t *testing.T) <-chan *message.Message {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		messages, err := n.subscriber.Subscribe(ctx, orders)
		if err != nil {
			t.Fatal(err)
		}
		for again := time.Now().Add(2 * time.Second); time.Now().Before(again); time.Sleep(5 * time.Millisecond) {
			if n.inState(t, deferred.StateDead) == 1 {
				return messages
			}
		}
		cancel()
		for range messages { // until it is closed
		}
	}
	t.Fatal("no sweep has found the lost claim")
	return nil
}

// steal does what a sweep does after the lease, and claims the message.
func (n *node) steal(t *testing.T) *message.Message {
	t.Helper()
	n.exec(t, "UPDATE inbox_pending SET state = 1, token = 0, due_at = 0 WHERE state = 2")
	stolen := receive(t, n.subscribe(t), "the message at the other node")
	if attempt, _ := deferred.Attempt(stolen); attempt != 2 {
		t.Fatalf("attempt %d, want 2", attempt)
	}
	return stolen
}

// wantHeld stops the test unless the only row is as the claim of a thief left it, and the thief can process the message.
func (n *node) wantHeld(t *testing.T, before string, stolen *message.Message) {
	t.Helper()
	if after := n.onlyRow(t); after != before {
		t.Fatalf("the stalled claim changed the row from %s to %s", before, after)
	}
	if err := n.handler(stolen); err != nil {
		t.Fatal(err)
	}
	stolen.Ack()
	n.waitForPending(t, 0)
	n.want(t, rows{biz: 1, inbox: 1})
	n.close(t)
}

// onlyRow shows what can change of the one row there is.
func (f *fixture) onlyRow(t *testing.T) string {
	t.Helper()
	shown := ""
	for _, column := range []string{"seq", "state", "token", "attempts", "due_at"} {
		shown += f.text(t, "SELECT "+column+" FROM inbox_pending") + " "
	}
	return shown + f.text(t, "SELECT reason FROM inbox_pending") + f.text(t, "SELECT last_error FROM inbox_pending")
}

// stalledCase lets a stalled claim end: after act, if that is not nil, its node is closed.
func stalledCase(options nodeOptions, act func(n *node, stalled *message.Message)) func(t *testing.T, f *fixture) {
	options.subscriber.Lease = fenceLease
	return func(t *testing.T, f *fixture) {
		n, thief := f.newNode(t, options, nil), f.newNode(t, nodeOptions{}, nil)
		stalled := n.hold(t)
		stolen := thief.steal(t)
		before := f.onlyRow(t)
		if act != nil {
			act(n, stalled)
			// Settled before Close, after which a nack would be a release.
			eventually(t, "the claim to end", func() bool { return stalled.Context().Err() != nil })
		}
		n.close(t)
		thief.wantHeld(t, before, stolen)
	}
}

func testStalledCompletes(t *testing.T, f *fixture) {
	n, thief := f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{Lease: fenceLease}}, nil), f.newNode(t, nodeOptions{}, nil)
	stalled := n.hold(t)
	stolen := thief.steal(t)
	before := f.onlyRow(t)
	err := n.handler(stalled)
	wantIs(t, err, inbox.ErrClaimLost)
	if inbox.IsPoison(err) || inbox.IsRetryable(err) {
		t.Fatal("a lost claim is neither poison nor retryable")
	}
	f.want(t, rows{})
	stalled.Nack()
	n.close(t)
	thief.wantHeld(t, before, stolen)
}

// testStalledRenews: the renewal finds the row in another claim, leaves it alone and ends the message's context.
func testStalledRenews(t *testing.T, f *fixture) {
	n, thief := f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{Lease: time.Second}}, nil), f.newNode(t, nodeOptions{}, nil)
	stalled := n.hold(t)
	stolen := thief.steal(t)
	before := f.onlyRow(t)
	receive(t, stalled.Context().Done(), "the end of the stalled message's context")
	if err := n.handler(stalled); err == nil || errors.Is(err, inbox.ErrClaimLost) {
		t.Fatalf("a handler must not begin after the end of its message's context: %v", err)
	}
	stalled.Ack()
	n.close(t)
	f.want(t, rows{})
	thief.wantHeld(t, before, stolen)
}
