package retention_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/retention"
)

func TestT39_exactly_what_is_older_than_its_horizon_goes(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		old, young := inbox.Identity{Producer: "p", ID: "61 minutes"}, inbox.Identity{Producer: "p", ID: "59 minutes"}
		l.add("c", old, 61*time.Minute)
		l.add("c", young, 59*time.Minute)
		l.add("kept", old, 30*24*time.Hour)
		l.add("short", young, 59*time.Minute)

		// Received 3 days ago and processed 1 minute ago: the age is that of the identity.
		l.add("c", inbox.Identity{ID: "late"}, time.Minute)

		// Pending, claimed and dead for 30 days: their identities are not processed, and nothing of them may go.
		for _, id := range []string{"pending", "claimed", "dead"} {
			l.receive("c", "topic", id)
		}
		month := (30 * 24 * time.Hour).Microseconds()
		l.exec("UPDATE inbox_pending SET state = 2 WHERE message_id = " + l.literal("claimed"))
		l.exec("UPDATE inbox_pending SET state = 4 WHERE message_id = " + l.literal("dead"))

		// Processed long ago, and second copies are still in the queue: under two topics, in any state.
		for id, state := range map[string]string{"copy pending": "0", "copy claimed": "2", "copy dead": "4"} {
			l.receive("c", "another topic", id)
			l.exec("UPDATE inbox_pending SET state = " + state + " WHERE message_id = " + l.literal(id))
			l.add("c", inbox.Identity{ID: id}, 30*24*time.Hour)
		}
		_, err := l.db.Exec("UPDATE inbox_pending SET received_at = received_at - ?, due_at = due_at - ?", month, month)
		if l.Driver == "pgx" {
			_, err = l.db.Exec("UPDATE inbox_pending SET received_at = received_at - $1, due_at = due_at - $1", month)
		}
		require.NoError(l, err)
		pending := l.count("SELECT COUNT(*) FROM inbox_pending")

		config := retention.Config{Horizon: time.Hour, Horizons: map[string]time.Duration{"kept": retention.Forever, "short": 10 * time.Minute}}
		dry := config
		dry.DryRun = true
		before := l.identities()
		require.EqualValues(l, 2, l.sweep(dry).Removed())
		require.Equal(l, before, l.identities())

		report := l.sweep(config)
		require.EqualValues(l, 2, report.Removed())
		require.Equal(l, []string{
			"c//copy claimed", "c//copy dead", "c//copy pending", "c//late", "c/p/59 minutes", "kept/p/61 minutes",
		}, l.identities())
		require.Equal(l, pending, l.count("SELECT COUNT(*) FROM inbox_pending"))
		require.Equal(l, []retention.ConsumerReport{
			{Consumer: "c", Horizon: time.Hour, Examined: 6, Removed: 1},
			{Consumer: "kept", Horizon: retention.Forever},
			{Consumer: "short", Horizon: 10 * time.Minute, Examined: 1, Removed: 1},
		}, report.Consumers)
		require.Zero(l, l.sweep(config).Removed())
	})
}

// Whoever uses the direct mode only has no table of pending messages.
func TestSweep_works_without_a_pending_table(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		l.add("c", inbox.Identity{ID: "1"}, time.Hour)
		require.EqualValues(l, 1, l.sweep(retention.Config{Horizon: time.Minute, DeadPayloads: time.Minute}).Removed())
		require.Empty(l, l.identities())
	})
}

// A window ends anywhere: within a producer, behind one, at the end of all.
func TestSweep_goes_through_windows_of_any_size(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		for window := 1; window <= 8; window++ {
			for _, producer := range []string{"", "\x00", "a", "a\xff", "b"} {
				for n := range len(producer) + 2 {
					identity := inbox.Identity{Producer: producer, ID: string(rune('A' + n))}
					l.add("c", identity, time.Hour)
					l.add("d", identity, time.Second)
				}
			}
			report := l.sweep(retention.Config{Horizon: time.Minute, Window: window, BatchSize: 2})
			require.EqualValues(l, 15, report.Removed(), "window %d", window)
			require.EqualValues(l, 30, report.Examined(), "window %d", window)
			require.Zero(l, l.count("SELECT COUNT(*) FROM inbox_messages WHERE consumer = "+l.literal("c")))
			l.exec("DELETE FROM inbox_messages")
		}
	})
}

// Payloads of dead messages go, and nothing else of them, and none of the living.
func TestDeadPayloads(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		for _, id := range []string{"dead", "dying", "pending"} {
			l.receive("c", "topic", id)
		}
		now := l.dialect().Now()
		l.exec("UPDATE inbox_pending SET state = 4, due_at = " + now + " - 7200000000, reason = " + l.literal("r") + " WHERE message_id = " + l.literal("dead"))
		l.exec("UPDATE inbox_pending SET state = 4 WHERE message_id = " + l.literal("dying"))
		l.exec("UPDATE inbox_pending SET due_at = due_at - 7200000000 WHERE message_id = " + l.literal("pending"))

		config := retention.Config{Horizon: retention.Forever, DeadPayloads: time.Hour, DryRun: true}
		require.EqualValues(l, 1, l.sweep(config).Payloads)
		require.Equal(l, 3, l.count("SELECT COUNT(*) FROM inbox_pending WHERE OCTET_LENGTH(payload) > 0"))
		config.DryRun = false
		require.EqualValues(l, 1, l.sweep(config).Payloads)
		require.Equal(l, 2, l.count("SELECT COUNT(*) FROM inbox_pending WHERE OCTET_LENGTH(payload) > 0"))
		require.Equal(l, 3, l.count("SELECT COUNT(*) FROM inbox_pending"))

		ctx := context.Background()
		store, err := deferred.NewStore(l.pool, l.Schema, deferred.Pending, nil)
		require.NoError(l, err)
		stripped, err := store.List(ctx, deferred.Filter{States: []deferred.State{deferred.StateStripped}})
		require.NoError(l, err)
		require.Len(l, stripped, 1)
		require.Equal(l, "dead", stripped[0].Identity.ID)
		require.Equal(l, "r", stripped[0].Reason)
		require.Zero(l, stripped[0].Size)

		var notDead *deferred.NotDeadError
		require.ErrorAs(l, store.Redrive(ctx, stripped[0].Number), &notDead)
		require.Equal(l, 1, l.count("SELECT COUNT(*) FROM inbox_pending WHERE state = 5"))
		require.NoError(l, store.Discard(ctx, stripped[0].Number))
		require.Zero(l, l.count("SELECT COUNT(*) FROM inbox_pending WHERE state = 5"))
	})
}
