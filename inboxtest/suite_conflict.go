package inboxtest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

var conflictCases = []testCase{
	{name: "T21_TenCopiesAtOnce", run: tenCopiesAtOnce, variants: true},
	{name: "T21_TenCopiesAndTheFirstFails", run: tenCopiesAndTheFirstFails, variants: true},
	{name: "T22_TenCopiesAtOtherIsolations", run: tenCopiesAtOtherIsolations},
	{name: "T22_SerializationFailureIsRetried", run: serializationFailureIsRetried},
	{name: "T22_SerializationFailureReachesTheCaller", run: serializationFailureReachesTheCaller},
	{name: "T23_WaitersAreEndedByTheEngine", run: waitersAreEndedByTheEngine},
	{name: "T23_LockTimeoutOfTheEngine", run: lockTimeoutOfTheEngine},
	{name: "T24_ReadThenWrite", run: readThenWrite, variants: true},
	{name: "T24_BusyIsRetried", run: busyIsRetried, variants: true},
	{name: "I3_InFlightElsewhere", run: inFlightElsewhere},
	{name: "I3_NoWait", run: noWait},
	{name: "I3_NoWaitForAnotherTable", run: noWaitForAnotherTable},
	{name: "I11_ConflictWhoseRowIsGone", run: conflictWhoseRowIsGone},
}

var errWanted = errors.New("inboxtest: the handler fails as the test wants")

// gate lets a test decide when handlers go on.
type gate struct {
	entered chan struct{}
	open    chan struct{}
	release func() // opens it; it is deferred too, so that a test that fails does not wait for its handler
}

func newGate() *gate {
	open := make(chan struct{})
	return &gate{make(chan struct{}, 100), open, sync.OnceFunc(func() { close(open) })}
}

func (g *gate) pass() {
	g.entered <- struct{}{}
	<-g.open
}

// waiters is how many of the consumer's four connections can wait for the one that holds the identity.
const waiters = 3

func tenCopiesAtOnce(t *testing.T, f *fixture) { f.tenCopies(t, inbox.Config{}) }

// tenCopies delivers ten copies at once, of which one may be handled and all must be acked.
func (f *fixture) tenCopies(t *testing.T, config inbox.Config) {
	t.Helper()
	config.WaitTimeout = patience
	g := newGate()
	defer g.release()
	c := f.consumer(t, config, func(msg *message.Message) ([]*message.Message, error) {
		produced, err := f.writes(msg)
		g.pass()
		return produced, err
	})

	deliveries := make(chan []delivery, 1)
	go func() { deliveries <- c.deliverAll(copies(10, "m1")...) }()
	receive(t, g.entered, "the first copy to be handled")
	f.waitForWaiters(t, waiters)
	g.release()

	for _, d := range receive(t, deliveries, "all copies") {
		wantAck(t, d)
	}
	c.wantCalls(t, 1)
	f.want(t, rows{biz: 1, inbox: 1})
}

func tenCopiesAndTheFirstFails(t *testing.T, f *fixture) {
	g := newGate()
	defer g.release()
	var c *consumer
	c = f.consumer(t, inbox.Config{WaitTimeout: patience}, func(msg *message.Message) ([]*message.Message, error) {
		first := c.calls.Load() == 1
		if _, err := f.writes(msg); err != nil {
			return nil, err
		}
		g.pass()
		if first {
			return nil, errWanted
		}
		return nil, nil
	})

	deliveries := make(chan []delivery, 1)
	go func() { deliveries <- c.deliverAll(copies(10, "m1")...) }()
	receive(t, g.entered, "the first copy to be handled")
	f.waitForWaiters(t, waiters)
	g.release()

	nacks := 0
	for _, d := range receive(t, deliveries, "all copies") {
		if d.err != nil {
			wantNack(t, d)
			if !errors.Is(d.err, errWanted) {
				t.Fatalf("want the handler's error, got %v", d.err)
			}
			nacks++
		}
	}
	if nacks != 1 {
		t.Fatalf("%d copies were nacked, want 1", nacks)
	}
	c.wantCalls(t, 2)
	f.want(t, rows{biz: 1, inbox: 1})
}

func waitersAreEndedByTheEngine(t *testing.T, f *fixture) {
	for range 5 { // InnoDB ends two of three waiters when the holder rolls back
		f.exec(t, "DELETE FROM "+inbox.DefaultMessagesTable)
		f.exec(t, "DELETE FROM biz")
		tenCopiesAndTheFirstFails(t, f)
	}
}

func lockTimeoutOfTheEngine(t *testing.T, f *fixture) {
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

	// The engine ends each wait long before the inbox would, so the attempt is repeated until its time is up.
	pool := f.open(t, Options{Connections: 2, LockTimeout: 300 * time.Millisecond})
	waiter := f.consumerOn(t, pool, inbox.Config{WaitTimeout: 1500 * time.Millisecond}, f.writes)
	d := waiter.deliver(newMessage("m1"))
	wantNack(t, d)
	wantInFlight(t, d.err)
	waiter.wantCalls(t, 0)

	g.release()
	wantAck(t, receive(t, held, "the holder's delivery"))
	wantAck(t, waiter.deliver(newMessage("m1")))
	waiter.wantCalls(t, 0)
	f.want(t, rows{biz: 1, inbox: 1})
}

func wantInFlight(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, inbox.ErrInFlight) || inbox.IsPoison(err) || !inbox.IsRetryable(err) {
		t.Fatalf("want ErrInFlight, retryable and not poison; got %v (retryable %t, poison %t)", err, inbox.IsRetryable(err), inbox.IsPoison(err))
	}
}

// readThenWrite is T24: what reads first and then writes meets BUSY on SQLite unless the inbox wrote before.
func readThenWrite(t *testing.T, f *fixture) {
	c := f.consumer(t, inbox.Config{WaitTimeout: patience}, func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := inbox.TxFromContext(msg.Context())
		result, err := tx.QueryContext(msg.Context(), "SELECT n FROM counter WHERE id = 1")
		if err != nil {
			return nil, err
		}
		result.Next()
		if err := result.Close(); err != nil {
			return nil, err
		}
		return nil, f.execInTx(msg.Context(), "UPDATE counter SET n = n + 1 WHERE id = 1")
	})
	var msgs []*message.Message
	for n := range 40 {
		msgs = append(msgs, newMessage("m"+string(rune('A'+n))))
	}
	for _, d := range c.deliverAll(msgs...) {
		wantAck(t, d)
	}
	if got := f.counter(t); got != 40 {
		t.Fatalf("counter is %d, want 40", got)
	}
	f.want(t, rows{inbox: 40})
}

// busyIsRetried has a lock timeout so short that the one writer that is at work is in the way of another message.
func busyIsRetried(t *testing.T, f *fixture) {
	if f.features().ConcurrentWriters {
		t.Skip("different messages are not in each other's way")
	}
	pool := f.open(t, Options{Connections: 2, LockTimeout: time.Millisecond})
	g := newGate()
	defer g.release()
	holder := f.consumerOn(t, pool, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		g.pass()
		return f.writes(msg)
	})
	held := make(chan delivery, 1)
	go func() { held <- holder.deliver(newMessage("m1")) }()
	receive(t, g.entered, "the holder")

	retries := retryLogger{retried: make(chan struct{}, 1)}
	other, err := inbox.New(pool.DB, f.withDefaults(inbox.Config{ConflictRetries: 1000, WaitTimeout: patience}), retries)
	if err != nil {
		t.Fatal(err)
	}
	delivered := make(chan delivery, 1)
	go func() { delivered <- deliver(other.Middleware(f.writes), newMessage("m2")) }()
	receive(t, retries.retried, "the other message to find the engine busy")
	g.release()

	wantAck(t, receive(t, held, "the holder's delivery"))
	wantAck(t, receive(t, delivered, "the other delivery"))
	f.want(t, rows{biz: 2, inbox: 2})
}

// retryLogger signals that an inbox tries a delivery again.
type retryLogger struct {
	watermill.NopLogger
	retried chan struct{}
}

// Debug is for the Inbox.
func (l retryLogger) Debug(_ string, fields watermill.LogFields) {
	if _, ok := fields["retry"]; ok {
		select {
		case l.retried <- struct{}{}:
		default:
		}
	}
}

func inFlightElsewhere(t *testing.T, f *fixture) {
	g := newGate()
	defer g.release()
	holder := f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		g.pass()
		return f.writes(msg)
	})
	held := make(chan delivery, 1)
	go func() { held <- holder.deliver(newMessage("m1")) }()
	receive(t, g.entered, "the holder")

	waiter := f.consumer(t, inbox.Config{WaitTimeout: 200 * time.Millisecond}, f.writes)
	d := waiter.deliver(newMessage("m1"))
	wantNack(t, d)
	wantInFlight(t, d.err)
	waiter.wantCalls(t, 0)

	g.release()
	wantAck(t, receive(t, held, "the holder's delivery"))
	wantAck(t, waiter.deliver(newMessage("m1")))
	waiter.wantCalls(t, 0)
	f.want(t, rows{biz: 1, inbox: 1})
}

func noWait(t *testing.T, f *fixture) {
	config := inbox.Config{NoWait: true, WaitTimeout: time.Hour}
	if !f.features().NoWait {
		if _, err := f.tryNewInbox(f.pool(t, 1), config); err == nil {
			t.Fatal("New accepts NoWait, which the dialect cannot do")
		}
		return
	}

	g := newGate()
	defer g.release()
	c := f.consumer(t, config, func(msg *message.Message) ([]*message.Message, error) {
		g.pass()
		return f.writes(msg)
	})
	held := make(chan delivery, 1)
	go func() { held <- c.deliver(newMessage("m1")) }()
	receive(t, g.entered, "the holder")

	// The holder holds until these have returned, so they did not wait for it.
	for range 3 {
		d := c.deliver(newMessage("m1"))
		wantNack(t, d)
		wantInFlight(t, d.err)
	}
	g.release()
	wantAck(t, receive(t, held, "the holder's delivery"))
	wantAck(t, c.deliver(newMessage("m1")))
	wantAck(t, c.deliver(newMessage("m2")))
	c.wantCalls(t, 2)
	f.want(t, rows{biz: 2, inbox: 2})
}

// noWaitForAnotherTable: another service may use the same names in another table, or in a table of the same name elsewhere on the server.
func noWaitForAnotherTable(t *testing.T, f *fixture) {
	if !f.features().NoWait {
		t.Skip("the dialect refuses NoWait")
	}
	g := newGate()
	defer g.release()
	holder := f.consumer(t, inbox.Config{NoWait: true}, func(msg *message.Message) ([]*message.Message, error) {
		g.pass()
		return f.writes(msg)
	})
	held := make(chan delivery, 1)
	go func() { held <- holder.deliver(newMessage("m1")) }()
	receive(t, g.entered, "the holder")

	other := f.database.Schema("other_messages")
	wantAck(t, f.consumer(t, inbox.Config{NoWait: true, Schema: other, AutoInitializeSchema: true}, f.writes).deliver(newMessage("m1")))
	elsewhere := newFixture(t, f.database, false)
	wantAck(t, elsewhere.consumer(t, inbox.Config{NoWait: true}, elsewhere.writes).deliver(newMessage("m1")))

	g.release()
	wantAck(t, receive(t, held, "the holder's delivery"))
	f.want(t, rows{biz: 2, inbox: 1})
	elsewhere.want(t, rows{biz: 1, inbox: 1})
}

// misleadingSchema once reads another row than it is asked for, as if an operator had removed the right one in between.
type misleadingSchema struct {
	inbox.Schema
	reads *int
}

func (s misleadingSchema) SelectQuery(row inbox.Row) wsql.Query {
	if *s.reads++; *s.reads == 1 {
		row.ID = "another"
	}
	return s.Schema.SelectQuery(row)
}

func conflictWhoseRowIsGone(t *testing.T, f *fixture) {
	reports := &reports{}
	reads := 0
	c := f.consumer(t, inbox.Config{Schema: misleadingSchema{f.database.Schema(""), &reads}, Observer: reports}, f.writes)
	wantAck(t, c.deliver(newMessage("m1")))
	wantAck(t, c.deliver(newMessage("m1")))

	if last := reports.last(); last.Outcome != inbox.Duplicate || last.Conflicts != 1 || reads != 2 {
		t.Fatalf("want a duplicate after one conflict and two reads; got %+v after %d reads", last, reads)
	}
	c.wantCalls(t, 1)
	f.want(t, rows{biz: 1, inbox: 1})
}
