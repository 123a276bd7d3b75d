package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"sync"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/metrics"
	"github.com/watermill-inbox/inbox/postgres"
	"github.com/watermill-inbox/inbox/retention"
	lab "github.com/watermill-inbox/inbox/tests/metrics"
)

// work is a service with something to do and some trouble.
type work struct {
	*lab.Service
	pool *pgxpool.Pool
	rand *rand.Rand // of the feeder alone
	sent []string
}

// newWork makes a service in a database of its own, which clean drops.
func newWork() (w *work, clean func(), err error) {
	ctx := context.Background()
	server := os.Getenv("INBOX_TEST_POSTGRES")
	if server == "" {
		server = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	admin, err := pgxpool.New(ctx, server)
	if err != nil {
		return nil, nil, err
	}
	name := fmt.Sprintf("inbox_picture_%x", rand.Uint64())
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, nil, err
	}
	w = &work{rand: rand.New(rand.NewPCG(1, 2))}
	clean = func() {
		if w.pool != nil {
			w.pool.Close()
		}
		_, _ = admin.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		admin.Close()
	}
	address, err := url.Parse(server)
	if err == nil {
		address.Path = "/" + name
		w.pool, err = pgxpool.New(ctx, address.String())
	}
	if err == nil {
		_, err = w.pool.Exec(ctx, "CREATE TABLE stock AS SELECT item, 0 AS units FROM generate_series(1, 50) item")
	}
	if err == nil {
		w.Service, err = lab.New(wsql.BeginnerFromPgx(w.pool), postgres.Schema{}, handle, metrics.BacklogConfig{CacheTime: 500 * time.Millisecond})
	}
	if err != nil {
		clean()
		return nil, nil, err
	}
	return w, clean, nil
}

// handle changes the stock of two items in any order, so that transactions sometimes end in a deadlock, and sometimes fails.
func handle(msg *message.Message) error {
	tx, _ := inbox.PgxTxFromContext(msg.Context())
	for range 2 {
		if _, err := tx.Exec(msg.Context(), "UPDATE stock SET units = units - 1 WHERE item = $1", 1+rand.IntN(50)); err != nil {
			return err
		}
		time.Sleep(time.Duration(2+rand.IntN(8)) * time.Millisecond)
	}
	if last := msg.UUID[len(msg.UUID)-1]; (last == '6' || last == '7') && rand.IntN(3) > 0 {
		return lab.ErrOutOfStock
	}
	return nil
}

// work feeds both consumers. The deferred one does not run in the second quarter of the time.
func (w *work) work(duration time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), duration)
	defer cancel()
	var running sync.WaitGroup
	start := func(run func()) {
		running.Add(1)
		go func() { defer running.Done(); run() }()
	}
	ids := make(chan string)
	for range 5 {
		start(func() {
			for id := range ids {
				_ = w.Deliver(id, "{}")
			}
		})
	}
	start(func() { w.consume(ctx, duration/4) })
	start(func() { w.remove(ctx) })
	err := w.feed(ctx, ids)
	close(ids)
	cancel()
	running.Wait()
	return errors.Join(err, w.Close())
}

func (w *work) consume(ctx context.Context, pause time.Duration) {
	first, end := context.WithTimeout(ctx, pause)
	defer end()
	_ = w.Run(first)
	select {
	case <-time.After(pause):
		_ = w.Run(ctx)
	case <-ctx.Done():
	}
}

// feed delivers new ids, old ones and, now and then, an id with other content.
func (w *work) feed(ctx context.Context, ids chan<- string) error {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("order-%d", n)
		w.sent = append(w.sent, id)
		select {
		case ids <- id:
		case <-ctx.Done():
		}
		if n%8 == 0 {
			ids <- w.sent[w.rand.IntN(len(w.sent))]
		}
		if n%1500 == 1499 {
			_ = w.Deliver(w.sent[n-100], "other")
		}
		if n%4 == 0 {
			if err := w.Receive(id); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

// remove keeps identities for a minute.
func (w *work) remove(ctx context.Context) {
	for tick := time.NewTicker(2 * time.Second); ctx.Err() == nil; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return
		}
		start := time.Now()
		tag, err := w.pool.Exec(ctx, `DELETE FROM inbox_messages WHERE ctid IN (
			SELECT ctid FROM inbox_messages WHERE consumer = $1 AND processed_at < now() - interval '1 minute' LIMIT 500)`, []byte(lab.Direct))
		if err == nil {
			w.Observer.ObserveBatch(retention.Batch{Consumer: lab.Direct, Examined: int(tag.RowsAffected()), Removed: int(tag.RowsAffected()), Duration: time.Since(start)})
		}
	}
}
