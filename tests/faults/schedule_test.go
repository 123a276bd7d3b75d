package faults

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// messagesPerSchedule keeps a run short; `make faults COUNT=20` runs more.
const messagesPerSchedule = 10

// TestSchedule lets several things go wrong in several deliveries of each message, at random points: also while an uncertain COMMIT is being
// resolved, a transaction rolled back or a duplicate recognised. The seed that it prints replays it.
func TestSchedule(t *testing.T) {
	seed := seedOf(t)
	tight := limits{Tx: soon, Wait: soon, Commit: soon, Resolve: 3 * soon}
	forEachTarget(t, func(t *testing.T, target target) {
		l := newLab(t, target)
		for n := range messagesPerSchedule {
			source := rand.New(rand.NewPCG(seed, uint64(n))) // of its own, so that a message's faults depend on nothing else
			schedule := NewSchedule(source, KindCut, KindCut, KindSwallow, KindKill, KindCancel, KindPanic, KindDelay)
			id := fmt.Sprintf("m%d", n)
			t.Run(id, func(t *testing.T) { l.follow(t, id, schedule, tight) })
		}
	})
}

// follow goes on to the end of the schedule, also when the message is acked before: brokers repeat what is acked.
func (l *lab) follow(t *testing.T, id string, schedule Schedule, times limits) {
	acked := false
	for n, faults := range schedule {
		start := time.Now()
		d := l.deliver(t, id, faults, times)
		t.Logf("delivery %d: %v: fired %v: %d runs, %s (%v) after %s", n+1, faults, d.fired, d.calls, d.result, d.err, time.Since(start))
		require.False(t, d.released && !l.deaf, "the delivery was not decided before its connection broke")
		if acked {
			require.Zero(t, d.calls, "runs of the handler after the ack")
		}
		acked = acked || d.acked
	}
	again, _ := l.redeliver(t, id)
	if acked {
		require.Zero(t, again, "runs of the handler after the ack")
	}
}
