// Package bench compares the deferred mode with River, a queue of jobs on PostgreSQL, for the same effect. It is a module of its own, outside
// the workspace, so that River's dependencies do not raise those that all other tests run with.
package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/postgres"
)

const (
	messages    = 40_000
	connections = 32 // of each pool
)

// inFlight are the numbers of messages, or of River's workers, at a time.
var inFlight = []int{16, 100, 500}

// BenchmarkQueue processes 40,000 stored messages, each with a one-row UPDATE of a row of its own in a transaction of its own. Compare the
// rates of one run with each other: the ratio printed at the end is that of the best rates.
//
//	make bench_queue
func BenchmarkQueue(b *testing.B) {
	pool := open(b)
	best := map[string]float64{}
	for _, queue := range []struct {
		name string
		run  func(b *testing.B, pool *pgxpool.Pool, inFlight int) time.Duration
	}{
		{"inbox", runInbox},
		{"river", runRiver},
	} {
		for _, n := range inFlight {
			b.Run(fmt.Sprintf("%s/%d", queue.name, n), func(b *testing.B) {
				for range b.N {
					took := queue.run(b, pool, n)
					rate := messages / took.Seconds()
					best[queue.name] = max(best[queue.name], rate)
					b.ReportMetric(rate, "messages/s")
				}
			})
		}
	}
	b.Logf("inbox %.0f messages/s, River %.0f jobs/s, ratio %.2f", best["inbox"], best["river"], best["inbox"]/best["river"])
}

func open(b *testing.B) *pgxpool.Pool {
	b.Helper()
	ctx := context.Background()
	address := inboxtest.Server(b, "INBOX_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable", func(address string) error {
		connection, err := pgx.Connect(ctx, address)
		if err != nil {
			return err
		}
		return connection.Close(ctx)
	})
	admin, err := pgxpool.New(ctx, address)
	require.NoError(b, err)
	b.Cleanup(admin.Close)
	name := fmt.Sprintf("inbox_bench_%d", time.Now().UnixNano())
	_, err = admin.Exec(ctx, "CREATE DATABASE "+name)
	require.NoError(b, err)
	b.Cleanup(func() {
		_, err := admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		require.NoError(b, err)
	})

	config, err := pgxpool.ParseConfig(address)
	require.NoError(b, err)
	config.ConnConfig.Database = name
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	return pool
}

// prepare makes the rows that the messages change.
func prepare(b *testing.B, pool *pgxpool.Pool) {
	b.Helper()
	exec(b, pool, "DROP TABLE IF EXISTS stock")
	exec(b, pool, "CREATE TABLE stock (id INT PRIMARY KEY, units INT NOT NULL)")
	exec(b, pool, fmt.Sprintf("INSERT INTO stock SELECT n, 0 FROM generate_series(1, %d) n", messages))
}

// settle is what every run begins with, so that none pays for the one before.
func settle(b *testing.B, pool *pgxpool.Pool) {
	b.Helper()
	exec(b, pool, "VACUUM ANALYZE")
	exec(b, pool, "CHECKPOINT")
}

// requireAll checks that each effect is there once.
func requireAll(b *testing.B, pool *pgxpool.Pool) {
	b.Helper()
	var once int
	require.NoError(b, pool.QueryRow(context.Background(), "SELECT COUNT(*) FROM stock WHERE units = 1").Scan(&once))
	require.Equal(b, messages, once)
}

func exec(b *testing.B, pool *pgxpool.Pool, statement string) {
	b.Helper()
	_, err := pool.Exec(context.Background(), statement)
	require.NoError(b, err, statement)
}

const update = "UPDATE stock SET units = units + 1 WHERE id = $1"

func runInbox(b *testing.B, pool *pgxpool.Pool, inFlight int) time.Duration {
	prepare(b, pool)
	exec(b, pool, "DROP TABLE IF EXISTS inbox_pending, inbox_messages")
	db := wsql.BeginnerFromPgx(pool)
	receiver, err := deferred.NewReceiver(db, deferred.ReceiverConfig{Schema: postgres.Schema{}, Consumer: "bench", AutoInitializeSchema: true}, nil)
	require.NoError(b, err)
	for first := 1; first <= messages; first += 1000 {
		var msgs []*message.Message
		for n := first; n < first+1000; n++ {
			msgs = append(msgs, message.NewMessage(watermill.NewUUID(), []byte(strconv.Itoa(n))))
		}
		require.NoError(b, receiver.Publish("orders", msgs...))
	}
	settle(b, pool)

	subscriber, err := deferred.NewSubscriber(db, deferred.SubscriberConfig{Schema: postgres.Schema{}, Consumer: "bench", MaxInFlight: inFlight}, nil)
	require.NoError(b, err)
	box, err := inbox.New(db, inbox.Config{Schema: postgres.Schema{}, Consumer: "bench"}, nil)
	require.NoError(b, err)
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(b, err)
	done := newCounter()
	router.AddMiddleware(done.middleware)
	router.AddConsumerHandler("bench", "orders", subscriber, inbox.ConsumePgxTx(func(msg *message.Message, tx pgx.Tx) error {
		id, err := strconv.Atoi(string(msg.Payload))
		if err != nil {
			return err
		}
		_, err = tx.Exec(msg.Context(), update, id)
		return err
	})).AddMiddleware(box.Middleware)

	start := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- router.Run(context.Background()) }()
	<-done.all
	took := time.Since(start)

	require.NoError(b, router.Close())
	require.NoError(b, <-stopped)
	requireAll(b, pool)
	var pending, identities int
	require.NoError(b, pool.QueryRow(context.Background(), "SELECT (SELECT COUNT(*) FROM inbox_pending), (SELECT COUNT(*) FROM inbox_messages)").Scan(&pending, &identities))
	require.Equal(b, [2]int{0, messages}, [2]int{pending, identities})
	return took
}

// counter tells when all messages are processed.
type counter struct {
	n   atomic.Int64
	all chan struct{}
}

func newCounter() *counter { return &counter{all: make(chan struct{})} }

func (c *counter) add() {
	if c.n.Add(1) == messages {
		close(c.all)
	}
}

func (c *counter) middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		if err == nil {
			c.add()
		}
		return produced, err
	}
}

type jobArgs struct {
	ID int `json:"id"`
}

func (jobArgs) Kind() string { return "bench" }

type worker struct {
	river.WorkerDefaults[jobArgs]
	pool *pgxpool.Pool
	done *counter
}

func (w *worker) Work(ctx context.Context, job *river.Job[jobArgs]) error {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, update, job.Args.ID); err != nil {
		return err
	}
	if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	w.done.add()
	return nil
}

func runRiver(b *testing.B, pool *pgxpool.Pool, inFlight int) time.Duration {
	ctx := context.Background()
	prepare(b, pool)
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	require.NoError(b, err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	require.NoError(b, err)
	exec(b, pool, "TRUNCATE river_job")

	done := newCounter()
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{pool: pool, done: done})
	client, err := river.NewClient(driver, &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: inFlight}},
		Workers:           workers,
		FetchCooldown:     time.Millisecond, // the least it takes
		FetchPollInterval: 10 * time.Millisecond,
		Logger:            quiet(),
	})
	require.NoError(b, err)
	for first := 1; first <= messages; first += 1000 {
		var jobs []river.InsertManyParams
		for n := first; n < first+1000; n++ {
			jobs = append(jobs, river.InsertManyParams{Args: jobArgs{n}})
		}
		_, err := client.InsertManyFast(ctx, jobs)
		require.NoError(b, err)
	}
	settle(b, pool)

	start := time.Now()
	require.NoError(b, client.Start(ctx))
	<-done.all
	took := time.Since(start)
	require.NoError(b, client.Stop(ctx))
	requireAll(b, pool)
	var completed int
	require.NoError(b, pool.QueryRow(ctx, "SELECT COUNT(*) FROM river_job WHERE state = 'completed'").Scan(&completed))
	require.Equal(b, messages, completed)
	return took
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}
