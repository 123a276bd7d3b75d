package retention_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/retention"
)

func newIdentities(l *lab) *retention.Identities {
	l.Helper()
	identities, err := retention.NewIdentities(l.pool, l.Schema, nil)
	require.NoError(l, err)
	return identities
}

func TestForget_makes_a_message_new_again(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		ctx, identities := context.Background(), newIdentities(l)
		box, err := inbox.New(l.pool, inbox.Config{Schema: l.Schema, Consumer: "c"}, nil)
		require.NoError(l, err)
		process := func() inbox.Outcome {
			outcome, err := box.Process(message.NewMessage("1", []byte("x")), func(context.Context) error { return nil })
			require.NoError(l, err)
			return outcome
		}
		require.Equal(l, inbox.Processed, process())
		require.Equal(l, inbox.Duplicate, process())
		record, err := identities.Find(ctx, "c", inbox.Identity{ID: "1"})
		require.NoError(l, err)
		require.Equal(l, "sha256", record.Fingerprint.Name)
		require.WithinDuration(l, time.Now(), record.Processed, time.Minute)

		require.NoError(l, identities.Forget(ctx, "c", inbox.Identity{ID: "1"}))
		_, err = identities.Find(ctx, "c", inbox.Identity{ID: "1"})
		require.ErrorIs(l, err, retention.ErrNotFound)
		require.Equal(l, inbox.Processed, process())
	})
}

func TestForget_is_all_or_nothing_and_leaves_what_is_pending(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		ctx, identities := context.Background(), newIdentities(l)
		l.receive("c", "topic", "waits")
		for _, id := range []string{"a", "b", "waits"} {
			l.add("c", inbox.Identity{ID: id}, time.Hour)
		}
		before := l.identities()
		var refused *retention.ForgetError
		require.ErrorAs(l, identities.Forget(ctx, "c", inbox.Identity{ID: "a"}, inbox.Identity{ID: "waits"}, inbox.Identity{ID: "never seen"}), &refused)
		require.Equal(l, []inbox.Identity{{ID: "waits"}}, refused.Pending)
		require.Equal(l, []inbox.Identity{{ID: "never seen"}}, refused.Missing)
		require.Error(l, identities.Forget(ctx, "", inbox.Identity{ID: "a"}))
		require.Equal(l, before, l.identities())
	})
}

func TestForgetRange_takes_a_time_range_of_one_consumer(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		ctx, identities := context.Background(), newIdentities(l)
		l.receive("c", "topic", "waits")
		for _, consumer := range []string{"c", "d"} {
			l.add(consumer, inbox.Identity{ID: "young"}, time.Minute)
			l.add(consumer, inbox.Identity{ID: "middle"}, time.Hour)
			l.add(consumer, inbox.Identity{Producer: "p", ID: "middle"}, time.Hour)
			l.add(consumer, inbox.Identity{ID: "waits"}, time.Hour)
			l.add(consumer, inbox.Identity{ID: "old"}, 3*time.Hour)
		}
		from, to := time.Now().Add(-2*time.Hour), time.Now().Add(-30*time.Minute)
		for _, wrong := range [][2]time.Time{{to, from}, {{}, to}, {from, {}}} {
			_, err := identities.ForgetRange(ctx, "c", wrong[0], wrong[1])
			require.Error(l, err)
		}
		_, err := identities.ForgetRange(ctx, "", from, to)
		require.Error(l, err)

		n, err := identities.CountRange(ctx, "c", from, to)
		require.NoError(l, err)
		require.EqualValues(l, 2, n)
		require.Len(l, l.identities(), 10)
		n, err = identities.ForgetRange(ctx, "c", from, to)
		require.NoError(l, err)
		require.EqualValues(l, 2, n)
		require.Equal(l, []string{"c//old", "c//waits", "c//young", "d//middle", "d//old", "d//waits", "d//young", "d/p/middle"}, l.identities())
	})
}

// stopper ends a context after the first transaction that removes something.
type stopper struct {
	stop     context.CancelFunc
	examined int
}

func (s *stopper) ObserveBatch(batch retention.Batch) {
	if s.examined += batch.Examined; batch.Removed > 0 {
		s.stop()
	}
}

func TestForgetRange_ends_between_two_transactions(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		l.fill(2500, time.Hour) // of consumer c
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		observer := &stopper{stop: cancel}
		from, to := time.Now().Add(-2*time.Hour), time.Now()

		n, err := newIdentities(l).WithObserver(observer).ForgetRange(ctx, "c", from, to)
		require.ErrorIs(l, err, context.Canceled)
		require.Positive(l, n)
		require.Less(l, n, int64(2500))
		require.Len(l, l.identities(), 2500-int(n))

		rest, err := newIdentities(l).WithObserver(observer).ForgetRange(context.Background(), "c", from, to)
		require.NoError(l, err)
		require.EqualValues(l, 2500, n+rest)
		require.GreaterOrEqual(l, observer.examined, 2500)
		require.Empty(l, l.identities())
	})
}

func TestIdentities_tells_what_there_is(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		ctx, identities := context.Background(), newIdentities(l)
		names, err := identities.Consumers(ctx)
		require.NoError(l, err)
		require.Empty(l, names)

		l.fill(2000, 2*time.Hour) // of consumer c
		for _, consumer := range []string{"a\x00b", "\xff"} {
			l.add(consumer, inbox.Identity{ID: "1"}, time.Minute)
		}
		names, err = identities.Consumers(ctx)
		require.NoError(l, err)
		require.Equal(l, []string{"a\x00b", "c", "\xff"}, names)

		estimate, err := identities.Estimate(ctx, "c")
		require.NoError(l, err)
		require.InEpsilon(l, 2000, estimate, 0.5)
		n, err := identities.ProcessedSince(ctx, "c", time.Hour)
		require.NoError(l, err)
		require.Zero(l, n)
		n, err = identities.ProcessedSince(ctx, "c", 3*time.Hour)
		require.NoError(l, err)
		require.EqualValues(l, 2000, n)

		var all []inbox.Identity
		for filter := (retention.Filter{Consumer: "c", Limit: 300}); ; {
			records, err := identities.List(ctx, filter)
			require.NoError(l, err)
			if len(records) == 0 {
				break
			}
			for _, record := range records {
				all = append(all, record.Identity)
			}
			filter.After = &all[len(all)-1]
		}
		require.Len(l, all, 2000)
		require.Equal(l, inbox.Identity{Producer: "old", ID: "001999"}, all[1999])
		recent, err := identities.List(ctx, retention.Filter{Consumer: "c", From: time.Now().Add(-time.Hour)})
		require.NoError(l, err)
		require.Empty(l, recent)
		_, err = identities.List(ctx, retention.Filter{})
		require.Error(l, err)
	})
}
