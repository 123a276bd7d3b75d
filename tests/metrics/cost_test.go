package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waiting is how many messages wait in a large queue.
const waiting = 100_000

// identities is how many are in the table of identities then.
func identities() int {
	if full() {
		return 10_000_000
	}
	return 200_000
}

// fill makes the queue and the table of identities large. Some of the messages are dead, some have topics and consumers of their own.
func (d *database) fill(t testing.TB, s *Service) {
	t.Helper()
	start := time.Now()
	require.NoError(t, s.Receive("first"))
	for n := 1; n < waiting; n *= 2 {
		d.exec(t, fmt.Sprintf("INSERT INTO inbox_pending (consumer, topic, producer, message_id, fingerprint, ordering_key, uuid, metadata, payload, reception, received_at, due_at)"+
			" SELECT consumer, topic, producer, %s, fingerprint, ordering_key, uuid, metadata, payload, reception, received_at, due_at FROM inbox_pending LIMIT %d", d.uuid, min(n, waiting-n)))
	}
	d.exec(t, "UPDATE inbox_pending SET state = 4 WHERE seq % 10 = 0")
	for n := 0; n < identities(); n += waiting {
		d.exec(t, "INSERT INTO inbox_messages (consumer, producer, message_id) SELECT consumer, producer, "+d.uuid+" FROM inbox_pending")
	}
	require.Equal(t, waiting, d.number(t, "SELECT COUNT(*) FROM inbox_pending"))
	t.Logf("%d messages and %d identities in %s", waiting, identities(), time.Since(start).Round(time.Second))
}

// BenchmarkScrape scrapes an empty database and a large one, with a query for every scrape. "all" counts every message, as Store.Count does.
// INBOX_TEST_SOAK=full makes ten million identities.
func BenchmarkScrape(b *testing.B) {
	for _, test := range databases {
		b.Run(test.name, func(b *testing.B) {
			d := test.open(b)
			s := newService(b, d)
			scrape := func(b *testing.B) {
				for range b.N {
					exposed := s.scrape(b)
					require.EqualValues(b, 1, value(exposed, "inbox_backlog_up"))
				}
			}
			b.Run("empty", scrape)
			d.fill(b, s)
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
