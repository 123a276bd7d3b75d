package faults

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPoints shows that the harness sees every step of a delivery once, with every driver and both protocols for statements: what it does
// not see, the sweep does not test.
func TestPoints(t *testing.T) {
	forEachTarget(t, func(t *testing.T, target target) {
		l := newLab(t, target)
		processed := []Step{Begin, Insert, Effect(1), Effect(2), Check, Outbox, Commit}
		if target.engine == isPostgres {
			processed = []Step{Begin, Insert, Effect(1), Effect(2), Outbox, Commit}
		}
		require.Equal(t, pointsOf(processed), l.deliver(t, "m1", nil, limits{}).passed)
		require.Equal(t, pointsOf([]Step{Begin, Insert, Compare, Rollback}), l.deliver(t, "m1", nil, limits{}).passed)
	})
}

func pointsOf(steps []Step) (points []Point) {
	for _, step := range steps {
		points = append(points, Point{step, Before}, Point{step, After})
	}
	return points
}

// TestDelay shows that an answer that comes late is an answer.
func TestDelay(t *testing.T) {
	forEachTarget(t, func(t *testing.T, target target) {
		l := newLab(t, target)
		var faults []Fault
		for _, point := range pointsOf([]Step{Begin, Insert, Effect(1), Effect(2), Outbox, Commit}) {
			faults = append(faults, Fault{Kind: KindDelay, Point: point})
		}
		d := l.deliver(t, "m1", faults, limits{})
		require.Len(t, d.fired, len(faults))
		require.True(t, d.acked, d.err)
		require.Equal(t, 1, d.calls)
	})
}

// TestT01 loses the answer to COMMIT, before and after the server has got it: the same delivery finds out what became of it, and the handler
// runs again only if nothing did.
func TestT01(t *testing.T) {
	forEachTarget(t, func(t *testing.T, target target) {
		l := newLab(t, target)
		for id, test := range map[string]struct {
			moment Moment
			calls  int
		}{
			"not-delivered": {Before, 2},
			"committed":     {After, 1},
		} {
			d := l.deliver(t, id, []Fault{{Kind: KindCut, Point: Point{Commit, test.moment}}}, limits{})
			require.True(t, d.acked, d.err)
			require.Equal(t, test.calls, d.calls, id)
			again, _ := l.redeliver(t, id)
			require.Zero(t, again, id)
		}
	})
}

// TestContextEndedBefore keeps known what becomes of a message whose context has ended before it is delivered: nothing, and no statement.
func TestContextEndedBefore(t *testing.T) {
	forEachTarget(t, func(t *testing.T, target target) {
		l := newLab(t, target)
		s, err := newService(l.target, l.dsn, l.at, limits{}, func(string) {}, func(Point) {})
		require.NoError(t, err)
		defer s.close()
		seen := NewInjector(nil, nil)
		l.setHook(seen.At)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r := s.deliver(ctx, "m1")
		require.False(t, r.acked)
		require.ErrorIs(t, r.err, context.Canceled)
		require.Empty(t, seen.Passed())
	})
}
