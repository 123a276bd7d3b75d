package faults

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// delivered is a delivery that is over.
type delivered struct {
	result
	calls    int
	released bool // it ended only because the connection did in the end
	fired    []string
	passed   []Point
}

// patience is how long a delivery may take before its held connections are cut. What a service allows itself is far below it.
const (
	patience     = 20 * time.Second
	deafPatience = 2 * time.Second // where it is known to be in vain
)

// deliver delivers a message under faults to a process of its own, which is started before and ends after, and checks that nothing is left
// open and nothing is done by halves.
func (l *lab) deliver(t *testing.T, id string, faults []Fault, times limits) delivered {
	t.Helper()
	var d delivered
	if endsProcess(faults) {
		d = l.deliverToChild(t, id, faults, times)
	} else {
		d = l.deliverHere(t, id, faults, times)
	}
	l.requireNone(t, l.sessions, "sessions are open on the server")

	s, err := l.state(id)
	require.NoError(t, err)
	if d.acked || s != nothing {
		require.Equal(t, everything, s, "after %s (%v), %s", d.result, d.err, d.fired)
	}
	return d
}

func endsProcess(faults []Fault) bool {
	for _, fault := range faults {
		if fault.Kind == KindKill || fault.Kind == KindExit {
			return true
		}
	}
	return false
}

// splitFaults tells what happens on the connection from what happens in the user's code.
func splitFaults(faults []Fault) (outside, inside []Fault) {
	for _, fault := range faults {
		if fault.Kind == KindPanic || fault.Kind == KindExit {
			inside = append(inside, fault)
		} else {
			outside = append(outside, fault)
		}
	}
	return outside, inside
}

func (l *lab) deliverHere(t *testing.T, id string, faults []Fault, times limits) delivered {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	outside, inside := splitFaults(faults)
	wire := NewInjector(outside, func(fault Fault) Verdict { return act(fault, cancel, nil) })
	code := NewInjector(inside, func(fault Fault) Verdict { panic(fault.String()) })

	l.setHook(wire.At)
	defer l.setHook(nil)
	s, err := newService(l.target, l.dsn, l.at, times, l.neverAfterCommit(t), func(p Point) { code.At(p) })
	require.NoError(t, err)
	defer s.close()

	d := delivered{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.result = s.deliver(ctx, id)
	}()
	d.released = l.await(done, s.pool.release)
	require.NotErrorIs(t, d.err, errUndecided)
	require.False(t, inbox.IsPoison(d.err) && len(code.Fired()) == 0, "poison: %v", d.err)
	require.False(t, s.leaks(), "the handler's context leads to a transaction after the delivery")
	eventually(t, func() string { return fmt.Sprintf("%d connections in use", s.pool.inUse()) }, func() bool {
		return s.pool.inUse() == 0 && s.inbox.AbandonedStatements() == 0
	})
	l.requireNone(t, l.openTx, "transactions are open on the server")
	d.calls = int(s.calls.Load())
	d.fired, d.passed = append(wire.Fired(), code.Fired()...), wire.Passed()
	return d
}

// await waits for the end of a delivery and then cuts the connections that are held. It reports whether it had to cut them before.
func (l *lab) await(done <-chan struct{}, release func()) (early bool) {
	defer l.release(release)
	limit := patience
	if l.deaf {
		limit = deafPatience
	}
	for {
		select {
		case <-done:
			return early
		case <-time.After(limit):
			early = true
			l.release(release)
		}
	}
}

func (l *lab) release(pool func()) {
	pool()
	if l.proxy != nil {
		l.proxy.Release()
	}
}

// act does what a fault on the connection is.
func act(fault Fault, cancel, kill func()) Verdict {
	switch fault.Kind {
	case KindCut:
		return Cut
	case KindSwallow:
		return Hold
	case KindKill:
		kill()
		return Cut // nobody is there any more
	case KindCancel:
		cancel()
	case KindDelay:
		time.Sleep(30 * time.Millisecond) // the fault itself, no wait for anything
	}
	return Pass
}

// neverAfterCommit fails the test if the handler runs for a message whose effect is committed.
func (l *lab) neverAfterCommit(t *testing.T) func(id string) {
	return func(id string) {
		if s, err := l.state(id); err != nil || s != nothing {
			t.Errorf("the handler runs for %s, and the database has %+v already (%v)", id, s, err)
		}
	}
}

// redeliver delivers a message until it is acked, as brokers do, each time to a new process without faults, and then once more, as
// if the ack had been lost.
func (l *lab) redeliver(t *testing.T, id string) (calls, deliveries int) {
	t.Helper()
	acked := false
	for !acked {
		require.Less(t, deliveries, 5, "%s is nacked without a fault", id)
		d := l.deliver(t, id, nil, limits{})
		calls += d.calls
		deliveries++
		acked = d.acked
	}
	once := l.deliver(t, id, nil, limits{})
	require.True(t, once.acked, once.err)
	require.Zero(t, once.calls, "handler runs of a duplicate")
	return calls, deliveries
}
