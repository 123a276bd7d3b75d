package retention_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/retention"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

const expired, batchSize = 10_000, 500

func TestT40_two_cleaners_and_four_consumers_do_not_hinder_each_other(t *testing.T) {
	for name, d := range databases.All {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, d)
			l.exec("CREATE TABLE effects (id VARCHAR(100) NOT NULL)")
			l.fill(expired, 2*time.Hour)
			l.requirePlans()
			recorder := &databases.Recorder{Beginner: l.pool}
			var wait sync.WaitGroup
			ended, busy := make(chan struct{}), atomic.Int64{}

			var cleaners sync.WaitGroup
			for range 2 {
				cleaners.Add(1)
				go func() {
					defer cleaners.Done()
					l.cleanUp(recorder, &busy)
				}()
			}
			consumed := make([]*consumption, 4)
			for n := range consumed {
				consumed[n] = l.newConsumption(n)
				wait.Add(1)
				go func() {
					defer wait.Done()
					consumed[n].run(ended)
				}()
			}
			cleaners.Wait()
			close(ended)
			wait.Wait()

			fresh := 0
			for _, c := range consumed {
				require.NoError(t, c.err)
				require.Zero(t, c.conflicts, "deadlocks and lock timeouts of consumers")
				fresh += c.fresh
			}
			require.Positive(t, fresh)
			require.Equal(t, fresh, l.count("SELECT COUNT(*) FROM inbox_messages WHERE producer = "+l.literal("fresh")), "what is not expired must stay")
			require.Equal(t, fresh+l.count("SELECT COUNT(*) FROM inbox_messages WHERE producer = "+l.literal("old")), l.count("SELECT COUNT(*) FROM effects"),
				"what is left of the old ones was processed again after it had gone")

			deletes := recorder.With("DELETE FROM")
			require.GreaterOrEqual(t, len(deletes), expired/batchSize)
			for _, statement := range deletes {
				_, ids, _ := strings.Cut(statement, " IN (")
				ids, _, _ = strings.Cut(ids, ") AND ")
				require.LessOrEqual(t, strings.Count(ids, ", ")+1, batchSize)
			}
			if !l.dialect().OneWriter() {
				require.Positive(t, busy.Load(), "the cleaners never met")
			}
			t.Logf("%d fresh messages beside the removal of %d identities; %d times another sweeper was at work", fresh, expired, busy.Load())
		})
	}
}

// fill stores old identities without handling them.
func (l *lab) fill(n int, ago time.Duration) {
	l.Helper()
	for first := 0; first < n; first += 500 {
		var rows []string
		for i := first; i < first+500; i++ {
			rows = append(rows, fmt.Sprintf("(%s, %s, %s)", l.literal("c"), l.literal("old"), l.literal(fmt.Sprintf("%06d", i))))
		}
		l.exec("INSERT INTO inbox_messages (consumer, producer, message_id) VALUES " + strings.Join(rows, ", "))
	}
	l.age(ago, "producer = "+l.literal("old"))
	l.exec(map[string]string{"pgx": "ANALYZE inbox_messages", "mysql": "ANALYZE TABLE inbox_messages", "sqlite": "ANALYZE"}[l.Driver])
}

// cleanUp sweeps until all expired identities are gone.
func (l *lab) cleanUp(pool wsql.Beginner, busy *atomic.Int64) {
	cleaner, err := retention.NewCleaner(pool, retention.Config{Schema: l.Schema, Horizon: time.Hour, BatchSize: batchSize, Window: 2 * batchSize, Pause: time.Millisecond}, nil)
	if err != nil {
		l.Error(err)
		return
	}
	for {
		report, err := cleaner.RunOnce(context.Background())
		switch {
		case errors.Is(err, retention.ErrAnotherSweeper):
			busy.Add(1)
			time.Sleep(time.Millisecond)
		case err != nil:
			l.Error(err)
			return
		case report.Removed() == 0:
			return
		}
	}
}

// consumption is one consumer that gets new messages, and old ones again.
type consumption struct {
	l                *lab
	number           int
	inbox            *inbox.Inbox
	fresh, conflicts int
	err              error
}

func (l *lab) newConsumption(number int) *consumption {
	c := &consumption{l: l, number: number}
	box, err := inbox.New(l.open(1), inbox.Config{
		Schema: l.Schema, Consumer: "c", ConflictRetries: -1, Observer: c,
		Identity: func(msg *message.Message) (inbox.Identity, error) {
			return inbox.Identity{Producer: msg.Metadata.Get("producer"), ID: msg.UUID}, nil
		},
		Fingerprint: inbox.NoFingerprint,
	}, nil)
	require.NoError(l, err)
	c.inbox = box
	return c
}

func (c *consumption) ObserveDelivery(report inbox.DeliveryReport) { c.conflicts += report.Conflicts }

func (c *consumption) run(ended <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-ended:
			return
		default:
		}
		for producer, id := range map[string]string{"fresh": fmt.Sprintf("%d-%d", c.number, n), "old": fmt.Sprintf("%06d", (n*4+c.number)%expired)} {
			msg := message.NewMessage(id, nil)
			msg.Metadata.Set("producer", producer)
			outcome, err := c.inbox.Process(msg, func(ctx context.Context) error {
				tx, _ := inbox.TxFromContext(ctx)
				_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ('"+id+"')")
				return err
			})
			if err != nil {
				c.err = err
				return
			}
			if producer == "fresh" && outcome == inbox.Processed {
				c.fresh++
			}
		}
	}
}

// requirePlans checks the statements of a sweep that removes nothing.
func (l *lab) requirePlans() {
	l.Helper()
	recorder := &databases.Recorder{Beginner: l.pool}
	stop, cancel := context.WithCancel(context.Background())
	recorder.BeforeCommit = func(statements []string) {
		if strings.Contains(statements[0], "DELETE FROM") {
			cancel() // database/sql rolls back, and pgx
		}
	}
	cleaner, err := retention.NewCleaner(recorder, retention.Config{Schema: l.Schema, Horizon: time.Hour, Window: 2 * batchSize}, nil)
	require.NoError(l, err)
	_, err = cleaner.RunOnce(stop)
	require.Error(l, err)
	l.requireIndex(append(recorder.With("WITH w AS"), recorder.With("DELETE FROM")...))
}
