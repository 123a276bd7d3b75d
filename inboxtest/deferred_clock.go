package inboxtest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

var clockCases = []testCase{
	{name: "T29_ClockAheadStealsNothing", run: func(t *testing.T, f *fixture) { testOtherClock(t, f, -10*time.Minute) }},
	{name: "T29_ClockBehindStealsNothing", run: func(t *testing.T, f *fixture) { testOtherClock(t, f, 10*time.Minute) }},
	{name: "T29_LeaseEndsByClockAhead", run: func(t *testing.T, f *fixture) { testLeaseOfThatClock(t, f, -10*time.Minute) }},
	{name: "T29_LeaseEndsByClockBehind", run: func(t *testing.T, f *fixture) { testLeaseOfThatClock(t, f, 10*time.Minute) }},
	{name: "D4_DelayedMessagesStayBack", run: testDelay},
}

// shiftedClock is a dialect of a database whose clock differs from that of this process.
type shiftedClock struct {
	deferred.Dialect
	ahead time.Duration
}

func (d shiftedClock) Now() string {
	return fmt.Sprintf("(%s + %d)", d.Dialect.Now(), d.ahead.Microseconds())
}

// testOtherClock: package deferred has no clock that a test could set, because its statements carry no time of the process; the process's clock only
// measures how long things take. So it is the database's clock that this test sets, which is the same thing seen from the other side: every time
// that came from the process would be ten minutes off, and leases would end at once or never.
func testOtherClock(t *testing.T, f *fixture, ahead time.Duration) {
	if !f.features().ConcurrentWriters {
		return // who has the one transaction that writes need not fear for its lease
	}
	clock := func(schema inbox.Schema) deferred.Dialect { return shiftedClock{schema.(deferred.Dialect), ahead} }
	options := nodeOptions{clock: clock, subscriber: deferred.SubscriberConfig{Lease: 3 * time.Second}}
	release := make(chan struct{})
	handler := func(msg *message.Message) error {
		if msg.UUID == "slow" {
			<-release
		}
		return nil
	}
	first, second := f.newNode(t, options, handler), f.newNode(t, options, handler)
	start := f.number(t, "SELECT "+clock(f.database.Schema("")).Now())
	first.store(t, newMessage("slow"))
	f.wantTime(t, "received_at", start, time.Minute)
	first.start(t)
	f.waitForState(t, deferred.StateClaimed, 1)
	f.wantTime(t, "due_at", start, time.Minute)
	second.start(t)
	time.Sleep(3500 * time.Millisecond) // the lease would be over
	close(release)
	f.waitForPending(t, 0)
	wantCalls(t, "slow", 1, first, second)

	f.want(t, rows{biz: 1, inbox: 1})
}

// testLeaseOfThatClock: a lease ends when it does by the database's clock.
func testLeaseOfThatClock(t *testing.T, f *fixture, ahead time.Duration) {
	clock := func(schema inbox.Schema) deferred.Dialect { return shiftedClock{schema.(deferred.Dialect), ahead} }
	var attempt atomic.Int64
	n := f.newNode(t, nodeOptions{clock: clock, subscriber: deferred.SubscriberConfig{Lease: 3 * time.Second}}, func(msg *message.Message) error {
		got, _ := deferred.Attempt(msg)
		attempt.Store(int64(got))
		return nil
	})
	n.store(t, newMessage("m1"))
	// A worker claimed it and disappeared.
	const rest = 400 * time.Millisecond
	start := time.Now()
	f.exec(t, fmt.Sprintf("UPDATE inbox_pending SET state = 2, token = 7, attempts = 1, due_at = %s + %d", clock(f.database.Schema("")).Now(), rest.Microseconds()))
	n.start(t)
	f.waitForPending(t, 0)
	if took := time.Since(start); took < rest || attempt.Load() != 2 {
		t.Fatalf("attempt %d came after %s", attempt.Load(), took)
	}
	f.want(t, rows{biz: 1, inbox: 1})
}

// wantTime stops the test unless a column of the only row is a time between start, in microseconds, and that much later.
func (f *fixture) wantTime(t *testing.T, column string, start int, later time.Duration) {
	t.Helper()
	at := f.number(t, "SELECT "+column+" FROM inbox_pending")
	if off := time.Duration(at-start) * time.Microsecond; off < 0 || off > later {
		t.Fatalf("%s is %s off the database's clock", column, off)
	}
}

func testDelay(t *testing.T, f *fixture) {
	const delay = 600 * time.Millisecond
	n := f.newNode(t, nodeOptions{receiver: deferred.ReceiverConfig{Delay: func(msg *message.Message) time.Duration {
		d, _ := time.ParseDuration(msg.Metadata.Get("delay")) // none: 0
		return d
	}}}, nil)
	delayed, negative := newMessage("delayed"), newMessage("negative")
	delayed.Metadata.Set("delay", delay.String())
	negative.Metadata.Set("delay", "-1h")
	start := time.Now()
	n.store(t, delayed, negative, newMessage("now"))
	for id, want := range map[string]time.Duration{"delayed": delay, "negative": 0, "now": 0} {
		if got := f.number(t, "SELECT due_at - received_at FROM inbox_pending WHERE message_id = "+f.bytes(id)); got != int(want.Microseconds()) {
			t.Fatalf("message %s stays back for %d microseconds, want %d", id, got, want.Microseconds())
		}
	}
	n.start(t)
	f.waitForPending(t, 0)
	if took := time.Since(start); took < delay-2*time.Millisecond { // SQLite cuts the time to milliseconds
		t.Fatalf("it came after %s", took)
	}
	f.want(t, rows{biz: 3, inbox: 3})
}
