package soak

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// run is one soak of one database.
type run struct {
	*testing.T
	size
	database database
	server   *server
	broker   *broker
	db       *sql.DB
	config   consumerConfig
	ctx      context.Context // ends when the run broke or took too long
	cancel   context.CancelCauseFunc
	began    time.Time

	mu      sync.Mutex
	living  []*process // the youngest last
	killed  int
	crashes int
	stops   int
	upSince time.Time // of the server; zero while it is down
	ended   counters  // of the processes that are gone
}

func newRun(t *testing.T, database database, rabbitMQ string, size size) *run {
	t.Helper()
	server := newServer(t, database)
	name := fmt.Sprintf("%s-%d", database.name, time.Now().UnixNano())
	r := &run{
		T:        t,
		size:     size,
		database: database,
		server:   server,
		config: consumerConfig{
			Database: database.name,
			DSN:      server.dsn(databaseName),
			Broker:   rabbitMQ,
			Orders:   "soak-orders-" + name,
			Poison:   "soak-poison-" + name,
		},
	}
	r.broker = newBroker(t, r.config)
	r.createDatabase()

	ctx, timeout := context.WithTimeout(context.Background(), size.limit)
	t.Cleanup(timeout)
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	return r
}

func (r *run) createDatabase() {
	_, err := r.server.admin.Exec("CREATE DATABASE " + databaseName)
	require.NoError(r, err)
	r.db, err = sql.Open(r.database.driver, r.config.DSN)
	require.NoError(r, err)
	r.Cleanup(func() { _ = r.db.Close() })

	statements, err := r.database.createTables()
	require.NoError(r, err)
	for counter := range counterCount {
		statements = append(statements, fmt.Sprintf("INSERT INTO counters VALUES (%d, 0)", counter))
	}
	for _, statement := range statements {
		_, err := r.db.Exec(statement)
		require.NoError(r, err, statement)
	}
	pool, closePool, err := r.database.open(r.config.DSN)
	require.NoError(r, err)
	defer closePool()
	_, err = inbox.New(pool, inbox.Config{Schema: r.database.schema, AutoInitializeSchema: true}, nil)
	require.NoError(r, err)
}

func (r *run) play() {
	r.began, r.upSince = time.Now(), time.Now()
	var faults sync.WaitGroup
	r.Cleanup(func() {
		r.cancel(errors.New("the test has ended"))
		faults.Wait()
		r.killAll()
	})
	r.startConsumers()

	done := make(chan struct{})
	faults.Go(func() { r.killConsumers(done) })
	faults.Go(func() { r.restartDatabase(done) })
	more := r.feed()
	for r.ready() > 0 {
		r.wait("the queue to be empty", 50*time.Millisecond)
	}
	close(done)
	faults.Wait()
	r.drain()
	r.check(more)
}

func (r *run) startConsumers() {
	for range consumerCount {
		require.NoError(r, r.startConsumer())
	}
}

func (r *run) startConsumer() error {
	p, err := startProcess(r.config)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.living = append(r.living, p)
	r.mu.Unlock()
	go func() {
		<-p.ended
		if !p.over.Load() {
			r.cancel(fmt.Errorf("a consumer ended by itself: %w\n%s", p.err, p.stderr.String()))
		}
	}()
	return nil
}

// broke is for goroutines, which may not end the test.
func (r *run) broke(err error) { r.cancel(err) }

// wait sleeps, and ends the test if it is broken or late.
func (r *run) wait(what string, d time.Duration) {
	r.Helper()
	select {
	case <-time.After(d):
	case <-r.ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		require.FailNow(r, "the soak ended early", "while waiting for %s, after %.0f s, %d kills and %d restarts: %v",
			what, time.Since(r.began).Seconds(), r.killed, r.crashes+r.stops, context.Cause(r.ctx))
	}
}

// drain ends the consumers when nothing is left to do. Only then RabbitMQ shows all messages that were not acked.
func (r *run) drain() {
	for {
		r.awaitQuiet()
		r.awaitNoTransaction()
		r.stopConsumers()
		if r.ready() == 0 {
			return
		}
		r.startConsumers()
	}
}

func (r *run) awaitQuiet() {
	const quiet = 20
	for last, same := -1, 0; same < quiet; {
		r.wait("the consumers to be idle", 50*time.Millisecond)
		if now := r.counted().Deliveries; now != last || r.ready() > 0 {
			last, same = now, 0
		} else {
			same++
		}
	}
}

// awaitNoTransaction is called while the consumers live, so that one that they left open is seen.
func (r *run) awaitNoTransaction() {
	for open, tries := 1, 0; open > 0; tries++ {
		require.Less(r, tries, 50, "%d transactions stay open", open)
		r.wait("transactions to end", 200*time.Millisecond) // InnoDB does not refresh its table while it is read more often
		require.NoError(r, r.db.QueryRow(r.database.openTransactions).Scan(&open))
	}
}

func (r *run) stopConsumers() {
	for _, p := range r.living {
		require.NoError(r, p.stop())
		r.ended.add(p.counted())
	}
	r.living = nil
}

func (r *run) killAll() {
	for _, p := range r.living {
		_ = p.kill()
		if r.Failed() {
			r.Logf("a consumer's errors:\n%s", p.stderr.String())
		}
	}
}

func (r *run) counted() counters {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := r.ended
	for _, p := range r.living {
		sum.add(p.counted())
	}
	return sum
}
