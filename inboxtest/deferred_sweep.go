package inboxtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

var sweepCases = []testCase{
	{name: "T27_ThreeNodesHandleEachMessageOnce", run: testThreeNodes, variants: true},
	{name: "T34_LostAtTheLimitIsDead", run: testLostAtTheLimit},
	{name: "T35_LateCommitIsNotSkipped", run: testLateCommit},
}

func testThreeNodes(t *testing.T, f *fixture) {
	const total = 100
	seen := &reports{}
	options := nodeOptions{
		inbox:      inbox.Config{Observer: seen},
		subscriber: deferred.SubscriberConfig{PollInterval: 10 * time.Millisecond},
	}
	nodes := []*node{f.newNode(t, options, nil), f.newNode(t, options, nil), f.newNode(t, options, nil)}
	var msgs []*message.Message
	for i := range total {
		msgs = append(msgs, newMessage(fmt.Sprint(i)))
	}
	nodes[0].store(t, msgs...)
	restless := func() {}
	if f.features().ConcurrentWriters { // else it would only be in the way of the one that writes
		restless = f.comesAndGoes(t)
	}
	for _, n := range nodes {
		n.start(t)
	}
	f.waitForPending(t, 0)
	restless()
	f.want(t, rows{biz: total, inbox: total})
	calls := 0
	for _, msg := range msgs {
		for _, n := range nodes {
			calls += n.callsOf(msg.UUID)
		}
	}
	// Where the database gave way to another transaction, the Inbox ran the handler again.
	if calls -= seen.conflicts(); calls != total {
		t.Fatalf("handled %d times, want %d", calls, total)
	}
}

// comesAndGoes runs a Subscriber that joins every 10 ms, which makes it sweep and claim, and leaves again. What it gets it gives back.
func (f *fixture) comesAndGoes(t *testing.T) (stop func()) {
	t.Helper()
	n := f.newNode(t, nodeOptions{withoutBox: true}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			for ctx.Err() == nil {
				visit, leave := context.WithTimeout(ctx, 10*time.Millisecond)
				messages, err := n.subscriber.Subscribe(visit, orders)
				if err != nil {
					leave()
					return err
				}
				<-visit.Done()
				for msg := range messages {
					msg.Nack()
				}
				leave()
			}
			return nil
		}()
	}()
	return func() {
		cancel()
		if err := receive(t, done, "the node that comes and goes"); err != nil {
			t.Fatal(err)
		}
	}
}

// testLostAtTheLimit: the sweep that finds the end of the lease makes the message dead, and nobody handles it once more.
func testLostAtTheLimit(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{MaxAttempts: 3, Lease: 6 * time.Second}}, nil)
	n.store(t, newMessage("crashes"))
	f.exec(t, "UPDATE inbox_pending SET state = 2, token = 7, attempts = 3, due_at = 0")
	n.store(t, newMessage("held"))
	f.exec(t, "UPDATE inbox_pending SET state = 2, token = 7, attempts = 3, due_at = due_at + 600000000 WHERE state = 0")
	n.store(t, newMessage("other"))
	n.start(t)
	f.waitForState(t, deferred.StateDead, 1)
	f.waitForPending(t, 2)
	wantCalls(t, "other", 1, n)
	wantCalls(t, "crashes", 0, n)
	wantCalls(t, "held", 0, n) // its lease has not ended
	f.want(t, rows{biz: 1, inbox: 1})
	if got := f.text(t, "SELECT reason FROM inbox_pending WHERE state = 4"); got != "attempts exhausted: the worker disappeared while it held the message" {
		t.Fatalf("reason %q", got)
	}
}

// testLateCommit: a number is taken before the COMMIT, so a later number can be seen first.
func testLateCommit(t *testing.T, f *fixture) {
	if !f.features().ConcurrentWriters {
		return // the second insert waits for the first
	}
	reached, goOn := make(chan struct{}, 100), make(chan struct{})
	late := f.newNode(t, nodeOptions{}, nil)
	// The late Receiver alone commits when it is told to. Its tables are there already.
	pool := faulty(f.pool(t, 2), &faultyDB{commit: func(_ context.Context, _ int64, tx ending) error {
		reached <- struct{}{}
		<-goOn
		return tx.commit()
	}})
	receiver, err := deferred.NewReceiver(pool.DB, deferred.ReceiverConfig{Schema: f.database.Schema(""), Consumer: "billing", Timeout: patience}, nil)
	if err != nil {
		t.Fatal(err)
	}
	stored := make(chan error, 1)
	go func() { stored <- receiver.Publish(orders, newMessage("m1")) }()
	receive(t, reached, "the first COMMIT")
	late.store(t, newMessage("m2"))
	messages := late.subscribe(t)
	wantNext(t, messages, "m2")
	close(goOn)
	if err := receive(t, stored, "the first message to be stored"); err != nil {
		t.Fatal(err)
	}
	wantNext(t, messages, "m1")
	f.waitForPending(t, 0)
}

// wantNext receives and acks a message, and stops the test unless it is that one.
func wantNext(t *testing.T, messages <-chan *message.Message, id string) {
	t.Helper()
	msg := receive(t, messages, "message "+id)
	if msg.UUID != id {
		t.Fatalf("message %s came, want %s", msg.UUID, id)
	}
	msg.Ack()
}
