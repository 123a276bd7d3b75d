package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// outage is a way for a database not to be there.
type outage struct {
	name   string
	begin  func(t *testing.T, l *lab)
	end    func(t *testing.T, l *lab)
	before bool // it begins before the deliveries do: a lock cannot be taken while they hold it
}

func outagesOf(l *lab) []outage {
	if l.engine == isSQLite {
		return []outage{{"locked", // by another process
			func(t *testing.T, l *lab) { l.exec(t, "BEGIN IMMEDIATE") },
			func(t *testing.T, l *lab) { l.exec(t, "ROLLBACK") },
			true,
		}}
	}
	up := func(t *testing.T, l *lab) { require.NoError(t, l.proxy.Up()) }
	return []outage{
		{"refused", func(_ *testing.T, l *lab) { l.proxy.Down() }, up, false},
		{"silent", func(_ *testing.T, l *lab) { l.proxy.Silence() }, up, false},
	}
}

func (l *lab) exec(t *testing.T, statement string) {
	t.Helper()
	_, err := l.admin.Exec(statement)
	require.NoError(t, err)
}

const (
	outageDeliveries = 20
	outageTime       = 5 * time.Second
	redeliveryDelay  = 200 * time.Millisecond // of the broker, for each message
)

// TestT26 takes the database away for five seconds while twenty deliveries are under way, most of them waiting for a connection. None is acked
// in that time, each is nacked within its bound, and afterwards everything is processed once.
func TestT26(t *testing.T) {
	forEachTarget(t, func(t *testing.T, target target) {
		l := newLab(t, target)
		for _, outage := range outagesOf(l) {
			t.Run(outage.name, func(t *testing.T) { l.survive(t, outage) })
		}
	})
}

func (l *lab) survive(t *testing.T, outage outage) {
	times := limits{Tx: 2 * time.Second, Wait: time.Second, Commit: soon, Resolve: 2 * time.Second}
	bound := times.Tx + times.Resolve + 2*times.Commit + time.Second // and a second for the machine
	bounded := !(l.deaf && outage.name == "silent")                  // the driver waits for an answer whatever the context says

	s, err := newService(l.target, l.dsn, l.at, times, l.neverAfterCommit(t), func(Point) {})
	require.NoError(t, err)
	defer s.close()
	working := make(chan struct{})
	var once sync.Once
	l.setHook(func(p Point) Verdict {
		if p == (Point{Effect(1), After}) {
			once.Do(func() { close(working) })
			if l.proxy != nil {
				<-time.After(soon / 10) // so that some are in the middle when it begins
			}
		}
		return Pass
	})
	defer l.setHook(nil)

	began := time.Now()
	var (
		mu    sync.Mutex
		down  bool
		nacks = map[string]int{} // while the database is away
		wait  sync.WaitGroup
	)
	start := func() {
		outage.begin(t, l)
		mu.Lock()
		down = true
		mu.Unlock()
	}
	if outage.before {
		start()
	}
	for n := range outageDeliveries {
		id := fmt.Sprintf("%s-%d", outage.name, n)
		wait.Add(1)
		go func() {
			defer wait.Done()
			for {
				start := time.Now()
				mu.Lock()
				wasDown := down
				mu.Unlock()
				r := s.deliver(context.Background(), id)
				took := time.Since(start)
				if bounded {
					assert.Less(t, took, bound, "%s: %v", id, r.err)
				}
				mu.Lock()
				if wasDown && down {
					assert.False(t, r.acked, "%s is acked without a database", id)
				}
				if down {
					nacks[id]++
				}
				mu.Unlock()
				if r.acked || !assert.Less(t, time.Since(began), outageTime+undecided/2, "%s: %v", id, r.err) {
					return
				}
				time.Sleep(redeliveryDelay) // as a broker does
			}
		}()
	}

	if !outage.before {
		select {
		case <-working:
		case <-time.After(undecided):
			require.Fail(t, "no handler runs")
		}
		start()
	}
	time.Sleep(outageTime) // the fault itself
	mu.Lock()
	down = false
	decided := len(nacks)
	mu.Unlock()
	outage.end(t, l)
	wait.Wait()

	processedBefore := 0
	for n := range outageDeliveries {
		id := fmt.Sprintf("%s-%d", outage.name, n)
		got, err := l.state(id)
		require.NoError(t, err)
		require.Equal(t, everything, got, id)
		if nacks[id] == 0 {
			processedBefore++
		}
	}
	if bounded {
		require.Greater(t, decided, outageDeliveries/2, "messages nacked while the database was away")
	}
	l.requireNone(t, l.openTx, "transactions are open on the server")
	t.Logf("%s: %d messages nacked, %d never, while the database was away; %d runs of the handler", outage.name, decided, processedBefore, s.calls.Load())
}
