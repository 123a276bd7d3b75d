package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// identities is how many are in the table of identities of a large database.
func identities() int {
	if full() {
		return 10_000_000
	}
	return 200_000
}

// fill makes the queue large. Every tenth message is dead.
func (d *database) fill(t testing.TB, s *Service, messages int) {
	t.Helper()
	require.NoError(t, s.Receive("first"))
	for n := 1; n < messages; n *= 2 {
		d.exec(t, fmt.Sprintf("INSERT INTO inbox_pending (consumer, topic, producer, message_id, fingerprint, ordering_key, uuid, metadata, payload, reception, received_at, due_at)"+
			" SELECT consumer, topic, producer, %s, fingerprint, ordering_key, uuid, metadata, payload, reception, received_at, due_at FROM inbox_pending LIMIT %d", d.uuid, min(n, messages-n)))
	}
	d.exec(t, "UPDATE inbox_pending SET state = 4 WHERE seq % 10 = 0")
	require.Equal(t, messages, d.number(t, "SELECT COUNT(*) FROM inbox_pending"))
}

// TestCountsReadABoundedPartOfTheQueue asks the engine what it has read, in a session that knew the table when it was empty, and whose planner knows nothing
// of its growth.
func TestCountsReadABoundedPartOfTheQueue(t *testing.T) {
	for name, engine := range engines {
		if engine.reads == nil {
			continue // tests/deferred looks at its plans
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, name)
			s := newService(t, d)
			s.scrape(t)
			d.fill(t, s, 20_000)
			reads := func(count func() error) int {
				before := d.read(t)
				require.NoError(t, count())
				return d.read(t) - before
			}
			all := reads(func() error { _, err := s.Store.Count(t.Context()); return err })
			require.GreaterOrEqual(t, all, 20_000, "the test would not see it")
			for range 10 { // after some runs a plan may be cached
				bounded := reads(func() error { _, _, err := s.Store.CountUpTo(t.Context(), 100); return err })
				require.LessOrEqual(t, bounded, 1000)
			}
		})
	}
}

// read asks in the pool's session, as whose only user the test gets the same one again and again.
func (d *database) read(t *testing.T) (n int) {
	t.Helper()
	for _, query := range d.reads {
		tx, err := d.pool.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		rows, err := tx.QueryContext(t.Context(), query)
		require.NoError(t, err)
		require.True(t, rows.Next())
		if query == d.reads[len(d.reads)-1] {
			require.NoError(t, rows.Scan(&n))
		}
		require.NoError(t, rows.Close())
		require.NoError(t, tx.Commit())
	}
	return n
}

// BenchmarkScrape scrapes an empty database and a large one, with a query for every scrape. "all" counts every message, as Store.Count does.
// INBOX_TEST_SOAK=full makes ten million identities.
func BenchmarkScrape(b *testing.B) {
	for name := range engines {
		b.Run(name, func(b *testing.B) {
			d := open(b, name)
			s := newService(b, d)
			scrape := func(b *testing.B) {
				for range b.N {
					exposed := s.scrape(b)
					require.EqualValues(b, 1, value(exposed, "inbox_backlog_up"))
				}
			}
			b.Run("empty", scrape)
			start := time.Now()
			d.fill(b, s, 100_000)
			for n := 0; n < identities(); n += 100_000 {
				d.exec(b, "INSERT INTO inbox_messages (consumer, producer, message_id) SELECT consumer, producer, "+d.uuid+" FROM inbox_pending")
			}
			b.Logf("100000 messages and %d identities in %s", identities(), time.Since(start).Round(time.Second))
			b.Run("large", scrape)
			b.Run("all", func(b *testing.B) {
				for range b.N {
					_, err := s.Store.Count(b.Context())
					require.NoError(b, err)
				}
			})
		})
	}
}
