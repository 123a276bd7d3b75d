package retention_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/retention"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// backlog is how many identities have expired. The full size is a million.
func backlog() int {
	if os.Getenv("INBOX_TEST_SOAK") == "full" {
		return 1_000_000
	}
	return 100_000
}

// BenchmarkSweep removes a backlog with the default configuration while four consumers work, as fast as they can, and compares the median of their latency with that of the same
// consumers a moment before the sweep or after it, whichever is less.
func BenchmarkSweep(b *testing.B) {
	for _, name := range []string{"postgres-pgx", "postgres-std", "mysql", "mariadb", "sqlite"} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				benchmarkSweep(b, databases.All[name])
			}
		})
	}
}

func benchmarkSweep(b *testing.B, d databases.Database) {
	l := newLab(b, d)
	l.exec("CREATE TABLE effects (id INTEGER NOT NULL PRIMARY KEY, n INTEGER NOT NULL)")
	l.exec("INSERT INTO effects VALUES (0, 0), (1, 0), (2, 0), (3, 0)")
	l.double(backlog())
	consumers := l.newConsumers(4)
	consumers.workFor(2 * time.Second) // connections, caches
	without := consumers.workFor(5 * time.Second)

	cleaner, err := retention.NewCleaner(l.pool, retention.Config{Schema: l.Schema, Horizon: time.Hour}, nil)
	require.NoError(b, err)
	var (
		report retention.Report
		took   time.Duration
	)
	with := consumers.work(func() {
		start := time.Now()
		report, err = cleaner.RunOnce(context.Background())
		took = time.Since(start)
	})
	require.NoError(b, err)
	without = min(without, consumers.workFor(5*time.Second)) // others may use the machine too
	require.EqualValues(b, backlog(), report.Removed())
	require.Equal(b, consumers.processed, l.count("SELECT COUNT(*) FROM inbox_messages"))

	b.ReportMetric(float64(report.Removed())/took.Seconds(), "rows/s")
	b.ReportMetric(with.Seconds()/without.Seconds(), "latency-ratio")
	b.ReportMetric(float64(without.Microseconds()), "without-µs")
	b.ReportMetric(float64(with.Microseconds()), "with-µs")
}

// double stores n identities with random ids that expired, without the statistics that a planner may have of them.
func (l *lab) double(n int) {
	l.Helper()
	uuid := map[string]string{"pgx": "gen_random_uuid()::text::bytea", "mysql": "UUID()", "sqlite": "CAST(hex(randomblob(16)) AS BLOB)"}[l.Driver]
	l.add("c", inbox.Identity{ID: "first"}, 2*time.Hour)
	for have := 1; have < n; have *= 2 {
		l.exec(fmt.Sprintf("INSERT INTO inbox_messages (consumer, producer, message_id, fingerprint, processed_at) SELECT consumer, producer, %s, fingerprint, processed_at FROM inbox_messages LIMIT %d",
			uuid, min(have, n-have)))
	}
}

// consumers process new messages at once.
type consumers struct {
	boxes     []*inbox.Inbox
	processed int
}

func (l *lab) newConsumers(n int) *consumers {
	l.Helper()
	c := &consumers{}
	for range n {
		box, err := inbox.New(l.open(1), inbox.Config{Schema: l.Schema, Consumer: "c"}, nil)
		require.NoError(l, err)
		c.boxes = append(c.boxes, box)
	}
	return c
}

func (c *consumers) workFor(d time.Duration) (median time.Duration) {
	return c.work(func() { time.Sleep(d) })
}

// work lets the consumers work during fn, and returns the median of what their messages took.
func (c *consumers) work(fn func()) (median time.Duration) {
	var (
		wait sync.WaitGroup
		took = make([][]time.Duration, len(c.boxes))
		errs = make([]error, len(c.boxes))
	)
	ended := make(chan struct{})
	for n, box := range c.boxes {
		wait.Add(1)
		go func() {
			defer wait.Done()
			took[n], errs[n] = consume(box, fmt.Sprintf("UPDATE effects SET n = n + 1 WHERE id = %d", n), ended)
		}()
	}
	fn()
	close(ended)
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			panic(err)
		}
	}
	all := slices.Concat(took...)
	c.processed += len(all)
	slices.Sort(all)
	return all[len(all)/2]
}

func consume(box *inbox.Inbox, effect string, ended <-chan struct{}) (took []time.Duration, err error) {
	for {
		select {
		case <-ended:
			return took, nil
		default:
		}
		start := time.Now()
		_, err := box.Process(message.NewMessage(watermill.NewUUID(), []byte("{}")), func(ctx context.Context) error {
			tx, _ := inbox.TxFromContext(ctx)
			_, err := tx.ExecContext(ctx, effect)
			return err
		})
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
}
