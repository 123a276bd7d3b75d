package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

var redriveCases = []testCase{
	{name: "T34_RedriveProcessesOnce", run: testRedrive, variants: true},
	{name: "T34_TwoRedrivesAtOnce", run: testTwoRedrives},
	{name: "T34_OnlyDeadMessagesChange", run: testOnlyDead},
	{name: "T34_RedriveWithoutAnswerIsNotRepeated", run: testUncertainRedrive},
	{name: "D3_DeadMessageParksItsKey", run: testDeadParks},
	{name: "D3_DeadMessageLetsItsKeyGo", run: testDeadLetsGo},
	{name: "D3_DiscardReleasesTheNext", run: testDiscardReleases},
}

// operator is what sees and changes a queue.
func (f *fixture) operator(t *testing.T, queue deferred.Queue) *deferred.Store {
	t.Helper()
	store, err := deferred.NewStore(f.pool(t, 2).DB, f.database.Schema(""), queue, nil)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// list returns the messages of the queue, or those in a state.
func list(t *testing.T, store *deferred.Store, states ...deferred.State) []deferred.StoredMessage {
	t.Helper()
	found, err := store.List(context.Background(), deferred.Filter{States: states})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// failing makes a node with an ordering key whose messages die at their first attempt while their metadata or the switch say so.
func (f *fixture) failing(t *testing.T, config deferred.SubscriberConfig, healed *atomic.Bool) *node {
	t.Helper()
	config.MaxAttempts = 1
	return f.newNode(t, nodeOptions{
		subscriber: config,
		receiver:   deferred.ReceiverConfig{OrderingKey: func(msg *message.Message) string { return msg.Metadata.Get("key") }},
	}, func(msg *message.Message) error {
		if msg.Metadata.Get("fails") != "" && !healed.Load() {
			return errors.New("no such account")
		}
		return nil
	})
}

func withKey(id, key string, fails bool) *message.Message {
	msg := newMessage(id)
	msg.Metadata.Set("key", key)
	if fails {
		msg.Metadata.Set("fails", "yes")
	}
	return msg
}

func testRedrive(t *testing.T, f *fixture) {
	var healed atomic.Bool
	n, store := f.failing(t, deferred.SubscriberConfig{}, &healed), f.operator(t, deferred.Pending)
	n.store(t, withKey("m1", "", true))
	stop := n.start(t)
	f.waitForState(t, deferred.StateDead, 1)
	stop()
	dead := list(t, store, deferred.StateDead)[0]
	if dead.Attempts != 1 || dead.LastError != "no such account" || dead.Reason != "attempts exhausted" {
		t.Fatalf("dead message: %+v", dead)
	}
	if err := store.Redrive(context.Background(), dead.Number); err != nil {
		t.Fatal(err)
	}
	if again := list(t, store)[0]; again.State != deferred.StatePending || again.Attempts != 0 || again.Reason != "" || again.Identity != dead.Identity {
		t.Fatalf("redriven message: %+v", again)
	}
	healed.Store(true)
	other := f.failing(t, deferred.SubscriberConfig{}, &healed)
	other.start(t)
	f.waitForPending(t, 0)
	wantCalls(t, "m1", 1, other)
	f.want(t, rows{biz: 1, inbox: 1})
	wantNotDead(t, store.Redrive(context.Background(), dead.Number), dead.Number)
	wantNotDead(t, store.Discard(context.Background(), dead.Number), dead.Number)
	f.want(t, rows{biz: 1, inbox: 1})
	if got := f.pending(t); got != 0 {
		t.Fatalf("%d rows pending after the redrive of a processed message", got)
	}
}

// wantNotDead stops the test unless err lists exactly these numbers.
func wantNotDead(t *testing.T, err error, numbers ...int64) {
	t.Helper()
	var notDead *deferred.NotDeadError
	if !errors.As(err, &notDead) || fmt.Sprint(notDead.Numbers) != fmt.Sprint(numbers) {
		t.Fatalf("want a *NotDeadError of %v, got: %v", numbers, err)
	}
	wantText(t, err, fmt.Sprint(numbers), "not dead")
}

func testTwoRedrives(t *testing.T, f *fixture) {
	n, store := f.newNode(t, nodeOptions{}, nil), f.operator(t, deferred.Pending)
	n.store(t, newMessage("m1"))
	f.exec(t, "UPDATE inbox_pending SET state = 4, attempts = 20")
	number := list(t, store)[0].Number
	reached, goOn := make(chan struct{}, 100), make(chan struct{})
	slow, err := deferred.NewStore(faulty(f.pool(t, 2), &faultyDB{commit: func(_ context.Context, _ int64, tx ending) error {
		reached <- struct{}{}
		<-goOn
		return tx.commit()
	}}).DB, f.database.Schema(""), deferred.Pending, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- slow.Redrive(context.Background(), number) }()
	receive(t, reached, "the first COMMIT")
	go func() { second <- store.Redrive(context.Background(), number) }()
	f.waitForWaiters(t, 1)
	close(goOn)
	if err := receive(t, first, "the first redrive"); err != nil {
		t.Fatal(err)
	}
	wantNotDead(t, receive(t, second, "the second redrive"), number)
	n.start(t)
	f.waitForPending(t, 0)
	wantCalls(t, "m1", 1, n)
	f.want(t, rows{biz: 1, inbox: 1})
}

// testUncertainRedrive: after a COMMIT without an answer the message may have died again, and what the operator does then is hers to decide.
func testUncertainRedrive(t *testing.T, f *fixture) {
	ends := map[string]func(*testing.T, ending) error{"committed": lostAnswer, "rolled back": lostRequest}
	changes := map[string]func(*deferred.Store, int64) error{
		"Redrive": func(s *deferred.Store, number int64) error { return s.Redrive(context.Background(), number) },
		"Discard": func(s *deferred.Store, number int64) error { return s.Discard(context.Background(), number) },
	}
	n, store := f.newNode(t, nodeOptions{}, nil), f.operator(t, deferred.Pending)
	for change, run := range changes {
		for end, lose := range ends {
			t.Run(change+" "+end, func(t *testing.T) {
				n.store(t, newMessage(change+end))
				f.exec(t, "UPDATE inbox_pending SET state = 4, attempts = 20")
				number := list(t, store)[0].Number
				db := &faultyDB{commit: func(_ context.Context, _ int64, tx ending) error {
					err := lose(t, tx)
					f.exec(t, "UPDATE inbox_pending SET state = 4, attempts = 7") // it died again
					return err
				}}
				silent, err := deferred.NewStore(faulty(f.pool(t, 2), db).DB, f.database.Schema(""), deferred.Pending, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := run(silent, number); !errors.Is(err, inbox.ErrCommitUncertain) {
					t.Fatalf("want ErrCommitUncertain, got: %v", err)
				}
				if commits := db.commits.Load(); commits != 1 {
					t.Fatalf("%d COMMITs, want 1", commits)
				}
				left := list(t, store)
				if gone := change == "Discard" && end == "committed"; gone != (len(left) == 0) {
					t.Fatalf("left over: %+v", left)
				}
				for _, dead := range left {
					if dead.State != deferred.StateDead || dead.Attempts != 7 {
						t.Fatalf("it was changed again: %+v", dead)
					}
					if err := store.Discard(context.Background(), dead.Number); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// testOnlyDead: if one of several messages is not dead, nothing changes.
func testOnlyDead(t *testing.T, f *fixture) {
	n, store := f.newNode(t, nodeOptions{}, nil), f.operator(t, deferred.Pending)
	n.store(t, newMessage("a"))
	n.store(t, newMessage("b"))
	f.exec(t, "UPDATE inbox_pending SET state = 4, attempts = 20")
	for _, id := range []string{"claimed", "waiting", "suspect", "pending"} {
		n.store(t, newMessage(id))
	}
	all := list(t, store)
	for i, state := range []deferred.State{deferred.StateClaimed, deferred.StateWaiting, deferred.StateSuspect} {
		f.exec(t, fmt.Sprintf("UPDATE inbox_pending SET state = %d WHERE seq = %d", state, all[i+2].Number))
	}
	before := list(t, store)
	a, b := all[0].Number, all[1].Number
	ctx := context.Background()
	for _, alive := range before[2:] {
		wantNotDead(t, store.Redrive(ctx, a, alive.Number, b), alive.Number)
		wantNotDead(t, store.Discard(ctx, a, alive.Number, b), alive.Number)
	}
	const unknown = 1 << 40
	wantNotDead(t, store.Redrive(ctx, unknown, a), unknown)
	wantNotDead(t, store.Discard(ctx, unknown, a), unknown)
	if after := list(t, store); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Fatalf("the queue changed from %+v to %+v", before, after)
	}
	if err := store.Discard(ctx, b, a, b); err != nil { // twice the same is once
		t.Fatal(err)
	}
	if after := list(t, store); fmt.Sprint(after) != fmt.Sprint(before[2:]) {
		t.Fatalf("after Discard the queue has %+v, want %+v", after, before[2:])
	}
	if err := errors.Join(store.Redrive(ctx), store.Discard(ctx)); err != nil {
		t.Fatal(err)
	}
}

func testDeadParks(t *testing.T, f *fixture) {
	var healed atomic.Bool
	n, store := f.failing(t, deferred.SubscriberConfig{}, &healed), f.operator(t, deferred.Pending)
	n.start(t)
	n.store(t, withKey("a1", "a", true))
	f.waitForState(t, deferred.StateDead, 1)
	n.store(t, withKey("a2", "a", false))
	n.store(t, withKey("b1", "b", false))
	n.store(t, withKey("free", "", false))
	f.waitForPending(t, 2)
	f.waitForState(t, deferred.StateWaiting, 1)
	wantCalls(t, "a2", 0, n)
	f.want(t, rows{biz: 2, inbox: 2})
	healed.Store(true)
	if err := store.Redrive(context.Background(), list(t, store, deferred.StateDead)[0].Number); err != nil {
		t.Fatal(err)
	}
	f.waitForPending(t, 0)
	f.want(t, rows{biz: 4, inbox: 4})
}

func testDeadLetsGo(t *testing.T, f *fixture) {
	var healed atomic.Bool
	n, store := f.failing(t, deferred.SubscriberConfig{DeadLetsGo: true}, &healed), f.operator(t, deferred.Pending)
	n.store(t, withKey("a1", "a", true))
	n.store(t, withKey("a2", "a", false), withKey("a3", "a", false))
	n.start(t)
	f.waitForPending(t, 1)
	f.want(t, rows{biz: 2, inbox: 2})
	dead := list(t, store)[0]
	if dead.UUID != "a1" || dead.State != deferred.StateDead {
		t.Fatalf("left over: %+v", dead)
	}
	healed.Store(true)
	if err := store.Redrive(context.Background(), dead.Number); err != nil {
		t.Fatal(err)
	}
	f.waitForPending(t, 0)
	f.want(t, rows{biz: 3, inbox: 3})
}

// testDiscardReleases: the lease, after which a sweep would look at the key, is longer than the test.
func testDiscardReleases(t *testing.T, f *fixture) {
	var healed atomic.Bool
	n, store := f.failing(t, deferred.SubscriberConfig{Lease: 10 * patience}, &healed), f.operator(t, deferred.Pending)
	n.store(t, withKey("a1", "a", true))
	n.store(t, withKey("a2", "a", false))
	n.store(t, withKey("a3", "a", false))
	n.start(t)
	f.waitForState(t, deferred.StateDead, 1)
	f.waitForState(t, deferred.StateWaiting, 2)
	if err := store.Discard(context.Background(), list(t, store, deferred.StateDead)[0].Number); err != nil {
		t.Fatal(err)
	}
	f.waitForPending(t, 0)
	wantCalls(t, "a1", 1, n)
	f.want(t, rows{biz: 2, inbox: 2})
}
