package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
)

// watchedSchema remembers the last row that was inserted.
type watchedSchema struct {
	inbox.Schema

	mu  sync.Mutex
	row inbox.Row
}

func (s *watchedSchema) InsertQuery(row inbox.Row) wsql.Query {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.row = row
	return s.Schema.InsertQuery(row)
}

func (s *watchedSchema) last() inbox.Row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.row
}

// inDoubt makes a consumer whose first COMMIT gets no answer while its transaction stays open on the server. The transaction is one of the test's own
// that wrote the same, because database/sql would end the consumer's when it is told to.
func (f *fixture) inDoubt(t *testing.T, config inbox.Config) (*consumer, <-chan *sql.Tx) {
	t.Helper()
	if !f.features().ConcurrentWriters {
		t.Skip("there is no server on which a transaction could stay")
	}
	schema := &watchedSchema{Schema: f.database.Schema("")}
	config.Schema = schema
	doubtful := make(chan *sql.Tx, 1)
	db := &faultyDB{commit: first(t, func(t *testing.T, tx ending) error {
		if err := tx.rollback(); err != nil {
			t.Errorf("roll back: %v", err)
		}
		doubtful <- f.repeat(t, schema.last())
		return io.ErrUnexpectedEOF
	})}
	return f.faultyConsumer(t, db, config), doubtful
}

// repeat writes what the transaction of m1 has written.
func (f *fixture) repeat(t *testing.T, row inbox.Row) *sql.Tx {
	tx, err := f.instance.Admin.BeginTx(context.Background(), nil)
	if err != nil {
		t.Errorf("begin: %v", err)
		return nil
	}
	query := f.database.Schema("").InsertQuery(row)
	_, err = tx.Exec(query.Query, query.Args...)
	_, bizErr := tx.Exec(f.insertBiz(), row.ID, 1)
	if err := errors.Join(err, bizErr); err != nil {
		t.Errorf("write again: %v", err)
	}
	return tx
}

func inDoubtEndsLate(commits bool) func(t *testing.T, f *fixture) {
	return func(t *testing.T, f *fixture) {
		c, doubtful := f.inDoubt(t, inbox.Config{})
		d := make(chan delivery, 1)
		go func() { d <- c.deliver(newMessage("m1")) }()
		tx := receive(t, doubtful, "the commit")
		f.waitForWaiters(t, 1)

		end, calls, want := tx.Rollback, int64(2), rows{biz: 1, inbox: 1, outbox: 1}
		if commits {
			end, calls, want = tx.Commit, 1, rows{biz: 1, inbox: 1}
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
		wantAck(t, receive(t, d, "the delivery"))
		c.wantCalls(t, calls)
		f.want(t, want)
	}
}

func inDoubtDoesNotEnd(t *testing.T, f *fixture) {
	c, doubtful := f.inDoubt(t, inbox.Config{WaitTimeout: time.Minute, ResolveTimeout: 300 * time.Millisecond})
	d := c.deliver(newMessage("m1"))
	tx := receive(t, doubtful, "the commit")
	wantUncertain(t, d)
	c.wantCalls(t, 1)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	f.want(t, rows{})
	wantAck(t, c.deliver(newMessage("m1")))
	c.wantCalls(t, 2)
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
}
