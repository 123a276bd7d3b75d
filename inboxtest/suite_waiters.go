package inboxtest

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// These are T23: what InnoDB does to transactions that wait for the key of another one.
var waiterCases = []testCase{
	{name: "T23_AWaiterIsTheVictimOfADeadlock", run: waiterIsAVictim},
	{name: "T23_LockTimeoutRollsBackTheWholeTransaction", run: lockTimeoutRollsBack},
}

// waiterIsAVictim sees the deadlock that InnoDB makes of three waiters when the holder of their key rolls back.
func waiterIsAVictim(t *testing.T, f *fixture) {
	if !f.features().EngineEndsTransactionOnDeadlock {
		t.Skip("the engine lets one of the waiters go on")
	}
	g, seen := newGate(), &reports{}
	defer g.release()
	var c *consumer
	c = f.consumer(t, inbox.Config{WaitTimeout: patience, Observer: seen}, func(msg *message.Message) ([]*message.Message, error) {
		if _, err := f.writes(msg); err != nil {
			return nil, err
		}
		if c.calls.Load() == 1 {
			g.pass()
			return nil, errWanted
		}
		return nil, nil
	})
	deliveries := make(chan []delivery, 1)
	go func() { deliveries <- c.deliverAll(copies(waiters+1, "m1")...) }()
	receive(t, g.entered, "the holder")
	f.waitForWaiters(t, waiters)
	g.release()

	nacks := 0
	for _, d := range receive(t, deliveries, "all copies") {
		if d.nacked {
			wantIs(t, d.err, errWanted)
			nacks++
		}
	}
	if nacks != 1 || seen.conflicts() == 0 {
		t.Fatalf("%d nacks, want the holder's; %d deadlocks, want at least one, else the test shows nothing", nacks, seen.conflicts())
	}
	c.wantCalls(t, 2)
	f.want(t, rows{biz: 1, inbox: 1})
}

// lockTimeoutRollsBack has an engine that ends the waiting insert alone and leaves its transaction open.
func lockTimeoutRollsBack(t *testing.T, f *fixture) {
	if !f.features().ConcurrentWriters {
		t.Skip("the engine has no lock timeout of its own")
	}
	g := newGate()
	defer g.release()
	holder := f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		g.pass()
		return f.writes(msg)
	})
	held := make(chan delivery, 1)
	go func() { held <- holder.deliver(newMessage("m1")) }()
	receive(t, g.entered, "the holder")

	pool := f.open(t, Options{Connections: 1, LockTimeout: 300 * time.Millisecond})
	waiter := f.consumerOn(t, pool, inbox.Config{WaitTimeout: patience, ConflictRetries: -1}, f.writes)
	d := waiter.deliver(newMessage("m1"))
	wantNack(t, d)
	if inbox.IsPoison(d.err) || !inbox.IsRetryable(d.err) || errors.Is(d.err, inbox.ErrInFlight) {
		t.Fatalf("want the engine's error, retryable and not poison; got retryable %t, poison %t, %v", inbox.IsRetryable(d.err), inbox.IsPoison(d.err), d.err)
	}
	if pool.InUse() != 0 {
		t.Fatal("the delivery has returned and keeps its connection")
	}
	if f.instance.Transactions != nil {
		waitFor(t, "only the holder's transaction to be open", f.instance.Transactions, func(open int) bool { return open == 1 })
	}

	// On the same connection: what were left of the transaction would be committed with this one.
	wantAck(t, waiter.deliver(newMessage("m2")))
	g.release()
	wantAck(t, receive(t, held, "the holder's delivery"))
	f.want(t, rows{biz: 2, inbox: 2})
}
