package inboxtest

import (
	"errors"
	"io"
	"sync/atomic"
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
	{name: "T30_StalledClaimCannotRemove", run: stalledCase(nodeOptions{withoutBox: true}, func(_ *stalling, msg *message.Message) { msg.Ack() }), variants: true},
	{name: "T30_StalledClaimCannotFail", run: stalledCase(nodeOptions{}, func(_ *stalling, msg *message.Message) { msg.Nack() }), variants: true},
	{name: "T30_StalledClaimCannotKill", run: stalledCase(
		nodeOptions{subscriber: deferred.SubscriberConfig{MaxAttempts: 1}}, func(_ *stalling, msg *message.Message) { msg.Nack() }), variants: true},
	{name: "T30_StalledClaimCannotRelease", run: stalledCase(nodeOptions{subscriber: deferred.SubscriberConfig{CloseTimeout: 20 * time.Millisecond}}, nil), variants: true},
	{name: "T30_StalledClaimCannotRenew", run: testStalledRenews, variants: true},
}

// standstill is a lease whose first renewal is later than any wait of a test.
const standstill = 6 * patience

// stalling is a node that can lose its database for a while.
type stalling struct {
	*node
	unreachable atomic.Bool
}

func (f *fixture) newStalling(t *testing.T, options nodeOptions) *stalling {
	t.Helper()
	n := &stalling{}
	options.faults = &faultyDB{begin: func(int64) error {
		if n.unreachable.Load() {
			return io.ErrUnexpectedEOF
		}
		return nil
	}}
	options.subscriber.Lease = standstill
	n.node = f.newNode(t, options, nil)
	return n
}

// stall makes the node claim the only message there is and then stand still, so that it does not notice what happens to the message.
func (n *stalling) stall(t *testing.T) *message.Message {
	t.Helper()
	n.store(t, newMessage("m1"))
	msg := receive(t, n.subscribe(t), "the message")
	n.unreachable.Store(true)
	n.waitForNoTransaction(t, "the node to stand still")
	return msg
}

// comeBack ends the standstill. What renews leases tries again much later.
func (n *stalling) comeBack() { n.unreachable.Store(false) }

// steal claims a stalled message after the end of its lease. What a sweep would do first is done by hand.
func (n *node) steal(t *testing.T, from *message.Message) *message.Message {
	t.Helper()
	last, _ := deferred.Attempt(from)
	n.exec(t, "UPDATE inbox_pending SET state = 0, token = 0, due_at = 0 WHERE state = 2")
	stolen := receive(t, n.subscribe(t), "the message at the other node")
	if attempt, _ := deferred.Attempt(stolen); attempt != last+1 {
		t.Fatalf("attempt %d after attempt %d", attempt, last)
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

// onlyRow shows what can change of the one row there is, but for the end of the lease, which the thief may renew.
func (f *fixture) onlyRow(t *testing.T) string {
	t.Helper()
	shown := ""
	for _, column := range []string{"seq", "state", "token", "attempts"} {
		shown += f.text(t, "SELECT "+column+" FROM inbox_pending") + " "
	}
	return shown + f.text(t, "SELECT reason FROM inbox_pending") + f.text(t, "SELECT last_error FROM inbox_pending")
}

// stalledCase lets a stalled claim end: after act, if that is not nil, its node is closed.
func stalledCase(options nodeOptions, act func(n *stalling, stalled *message.Message)) func(t *testing.T, f *fixture) {
	return func(t *testing.T, f *fixture) {
		n, thief := f.newStalling(t, options), f.newThief(t)
		stalled := n.stall(t)
		stolen := thief.steal(t, stalled)
		before := f.onlyRow(t)
		n.comeBack()
		if act != nil {
			act(n, stalled)
			// Settled before Close, after which a nack would be a release.
			eventually(t, "the claim to end", func() bool { return stalled.Context().Err() != nil })
		}
		n.close(t)
		thief.wantHeld(t, before, stolen)
	}
}

func (f *fixture) newThief(t *testing.T) *node {
	t.Helper()
	return f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{Lease: standstill}}, nil)
}

func testStalledCompletes(t *testing.T, f *fixture) {
	n, thief := f.newStalling(t, nodeOptions{}), f.newThief(t)
	stalled := n.stall(t)
	stolen := thief.steal(t, stalled)
	before := f.onlyRow(t)
	n.comeBack()
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
	// With one message in flight the node does not claim it again itself.
	n, thief := f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{Lease: 3 * time.Second, MaxInFlight: 1}}, nil), f.newThief(t)
	n.store(t, newMessage("m1"))
	stalled := receive(t, n.subscribe(t), "the message")
	stolen := thief.steal(t, stalled)
	before, lease := f.onlyRow(t), f.number(t, "SELECT due_at FROM inbox_pending")
	receive(t, stalled.Context().Done(), "the end of the stalled message's context")
	if after := f.number(t, "SELECT due_at FROM inbox_pending"); after < lease {
		t.Fatal("the renewal changed the other node's lease")
	}
	if err := n.handler(stalled); err == nil || errors.Is(err, inbox.ErrClaimLost) {
		t.Fatalf("a handler must not begin after the end of its message's context: %v", err)
	}
	stalled.Ack()
	n.close(t)
	f.want(t, rows{})
	thief.wantHeld(t, before, stolen)
}
