package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/deferred"
)

// stripCases are about dead messages whose payloads retention removed.
var stripCases = []testCase{
	{name: "D5_StripTakesOnlyLongDeadMessages", run: testStripSelects, variants: true},
	{name: "D5_StrippedCanOnlyBeDiscarded", run: testStripped},
	{name: "D5_StrippedRecognisesRedeliveries", run: testStrippedRedelivery},
	{name: "D5_StrippedParksItsKey", run: testStrippedParks},
	{name: "D5_StrippedLetsItsKeyGo", run: testStrippedLetsGo},
}

// stripAll strips all dead messages, as if they had been dead for two hours.
func (f *fixture) stripAll(t *testing.T, store *deferred.Store, want int) {
	t.Helper()
	f.exec(t, "UPDATE inbox_pending SET due_at = due_at - 7200000000 WHERE state = 4")
	stripped, err := store.Strip(context.Background(), time.Hour, 100)
	if err != nil || stripped != want {
		t.Fatalf("%d messages stripped, want %d; error %v", stripped, want, err)
	}
}

func testStripSelects(t *testing.T, f *fixture) {
	receiver, store := f.receiverOf(t, deferred.ReceiverConfig{Consumer: "billing"}), f.operator(t, deferred.Pending)
	storeEach(t, receiver, orders, "old0", "old1", "old2", "young", "0", "1", "2", "3")
	f.exec(t, "UPDATE inbox_pending SET due_at = due_at - 7200000000 WHERE message_id <> "+f.bytes("young"))
	f.exec(t, "UPDATE inbox_pending SET state = 4 WHERE message_id NOT IN ("+f.bytes("0")+", "+f.bytes("1")+", "+f.bytes("2")+", "+f.bytes("3")+")")
	for state := range 4 {
		f.exec(t, fmt.Sprintf("UPDATE inbox_pending SET state = %d WHERE message_id = %s", state, f.bytes(fmt.Sprint(state))))
	}
	ctx := context.Background()
	if n, err := store.CountStrip(ctx, time.Hour); err != nil || n != 3 {
		t.Fatalf("%d messages to be stripped, error %v", n, err)
	}
	for _, want := range []int{2, 1, 0} {
		if stripped, err := store.Strip(ctx, time.Hour, 2); err != nil || stripped != want {
			t.Fatalf("%d messages stripped, want %d; error %v", stripped, want, err)
		}
	}
	for _, m := range list(t, store) {
		if old := m.UUID[:1] == "o"; old != (m.State == deferred.StateStripped) || old != (m.Size == 0) {
			t.Fatalf("after Strip: %+v", m)
		}
	}
}

func testStripped(t *testing.T, f *fixture) {
	var healed atomic.Bool
	n, store := f.failing(t, deferred.SubscriberConfig{}, &healed), f.operator(t, deferred.Pending)
	n.store(t, withKey("m1", "", true), withKey("m2", "", true))
	stop := n.start(t)
	f.waitForState(t, deferred.StateDead, 2)
	stop()
	before := list(t, store)
	f.stripAll(t, store, 2)
	wantCounts(t, store, deferred.Count{Consumer: "billing", Topic: orders, Stripped: 2})
	m1, m2 := list(t, store, deferred.StateStripped)[0], before[1].Number
	if want := before[0]; m1.Identity != want.Identity || m1.Reason != want.Reason || m1.LastError != "no such account" || m1.Attempts != 1 || m1.Size != 0 {
		t.Fatalf("stripped message: %+v; before: %+v", m1, want)
	}
	ctx := context.Background()
	if _, err := store.Load(ctx, m1.Number); !errors.Is(err, deferred.ErrStripped) {
		t.Fatalf("Load of a stripped message: %v", err)
	}

	// One that can be redriven does not go alone.
	f.exec(t, fmt.Sprintf("UPDATE inbox_pending SET state = 4 WHERE seq = %d", m2))
	var refused *deferred.NotDeadError
	err := store.Redrive(ctx, m2, m1.Number)
	if !errors.As(err, &refused) || fmt.Sprint(refused.Stripped) != fmt.Sprint([]int64{m1.Number}) || len(refused.Numbers) != 0 {
		t.Fatalf("Redrive of a stripped message: %v", err)
	}
	wantText(t, err, "only be discarded")
	if f.inState(t, deferred.StateDead) != 1 || f.inState(t, deferred.StateStripped) != 1 {
		t.Fatalf("the queue changed to %+v", list(t, store))
	}
	if err := store.Discard(ctx, m1.Number, m2); err != nil {
		t.Fatal(err)
	}
	if left := f.pending(t); left != 0 {
		t.Fatalf("%d messages left", left)
	}
	f.want(t, rows{})
}

// testStrippedRedelivery: what is left of a stripped message still is the message.
func testStrippedRedelivery(t *testing.T, f *fixture) {
	n, store := f.newNode(t, nodeOptions{}, nil), f.operator(t, deferred.Pending)
	n.store(t, newMessage("m1"))
	f.exec(t, "UPDATE inbox_pending SET state = 4")
	f.stripAll(t, store, 1)
	ctx := context.Background()
	for want, msg := range map[deferred.ReceiveOutcome]*message.Message{
		deferred.AlreadyPending: newMessage("m1"),
		deferred.Mismatch:       newMessageWith("m1", "other"),
	} {
		if outcomes, _ := n.receiver.Receive(ctx, orders, msg); outcomes[0] != want {
			t.Fatalf("redelivery: %v, want %v", outcomes[0], want)
		}
	}
	if err := store.Discard(ctx, list(t, store)[0].Number); err != nil {
		t.Fatal(err)
	}
	n.store(t, newMessage("m1"))
	n.start(t)
	f.waitForPending(t, 0)
	wantCalls(t, "m1", 1, n)
	f.want(t, rows{biz: 1, inbox: 1})
}

// testStrippedParks: the lease, after which a sweep would look at the key, is longer than the test.
func testStrippedParks(t *testing.T, f *fixture) {
	var healed atomic.Bool
	n, store := f.failing(t, deferred.SubscriberConfig{Lease: 10 * patience}, &healed), f.operator(t, deferred.Pending)
	n.store(t, withKey("a1", "a", true))
	n.start(t)
	f.waitForState(t, deferred.StateDead, 1)
	f.stripAll(t, store, 1)
	n.store(t, withKey("a2", "a", false))
	n.store(t, withKey("b1", "b", false))
	f.waitForPending(t, 2)
	f.waitForState(t, deferred.StateWaiting, 1)
	wantCalls(t, "a2", 0, n)
	if err := store.Discard(context.Background(), list(t, store, deferred.StateStripped)[0].Number); err != nil {
		t.Fatal(err)
	}
	f.waitForPending(t, 0)
	wantCalls(t, "a1", 1, n)
	f.want(t, rows{biz: 2, inbox: 2})
}

func testStrippedLetsGo(t *testing.T, f *fixture) {
	var healed atomic.Bool
	n, store := f.failing(t, deferred.SubscriberConfig{DeadLetsGo: true}, &healed), f.operator(t, deferred.Pending)
	n.store(t, withKey("a1", "a", true))
	stop := n.start(t)
	f.waitForState(t, deferred.StateDead, 1)
	stop()
	f.stripAll(t, store, 1)
	other := f.failing(t, deferred.SubscriberConfig{DeadLetsGo: true}, &healed)
	other.store(t, withKey("a2", "a", false))
	other.store(t, withKey("a3", "a", false))
	other.start(t)
	f.waitForPending(t, 1)
	f.want(t, rows{biz: 2, inbox: 2})
	if left := list(t, store)[0]; left.UUID != "a1" || left.State != deferred.StateStripped {
		t.Fatalf("left over: %+v", left)
	}
}
