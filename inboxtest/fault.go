package inboxtest

import (
	"context"
	"database/sql"
	"io"
	"sync/atomic"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/watermill-inbox/inbox"
)

// faultyDB is a real database whose transactions begin and end as a test says. The hooks get the number of the call, counted from 1,
// and nil hooks do what the database does.
type faultyDB struct {
	wsql.Beginner
	begin    func(n int64) error
	commit   func(ctx context.Context, n int64, tx ending) error
	rollback func(ctx context.Context, n int64, tx ending) error

	begins, commits, rollbacks atomic.Int64
}

// ending are the real ways in which a transaction ends.
type ending struct {
	commit, rollback func() error
}

// faulty puts faults between a pool and an inbox.
func faulty(pool Pool, db *faultyDB) Pool {
	db.Beginner = pool.DB
	pool.DB = db
	return pool
}

// BeginTx keeps pgx's transactions recognisable, because the inbox ends them in another way than those of database/sql.
func (db *faultyDB) BeginTx(ctx context.Context, options *sql.TxOptions) (wsql.Tx, error) {
	if n := db.begins.Add(1); db.begin != nil {
		if err := db.begin(n); err != nil {
			return nil, err
		}
	}
	tx, err := db.Beginner.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	if native, ok := tx.(*wsql.PgxTx); ok {
		native.Tx = faultyPgxTx{native.Tx, db}
		return native, nil
	}
	return faultyTx{tx, db}, nil
}

func (db *faultyDB) end(ctx context.Context, hook func(context.Context, int64, ending) error, count *atomic.Int64, real func() error, tx ending) error {
	n := count.Add(1)
	if hook == nil {
		return real()
	}
	return hook(ctx, n, tx)
}

type faultyTx struct {
	wsql.Tx
	db *faultyDB
}

func (tx faultyTx) real() ending { return ending{tx.Tx.Commit, tx.Tx.Rollback} }

func (tx faultyTx) Commit() error {
	return tx.db.end(context.Background(), tx.db.commit, &tx.db.commits, tx.Tx.Commit, tx.real())
}

func (tx faultyTx) Rollback() error {
	return tx.db.end(context.Background(), tx.db.rollback, &tx.db.rollbacks, tx.Tx.Rollback, tx.real())
}

type faultyPgxTx struct {
	pgx.Tx
	db *faultyDB
}

func (tx faultyPgxTx) real(ctx context.Context) ending {
	return ending{
		func() error { return tx.Tx.Commit(ctx) },
		func() error { return tx.Tx.Rollback(ctx) },
	}
}

func (tx faultyPgxTx) Commit(ctx context.Context) error {
	real := tx.real(ctx)
	return tx.db.end(ctx, tx.db.commit, &tx.db.commits, real.commit, real)
}

func (tx faultyPgxTx) Rollback(ctx context.Context) error {
	real := tx.real(ctx)
	return tx.db.end(ctx, tx.db.rollback, &tx.db.rollbacks, real.rollback, real)
}

// lostAnswer commits, and the answer does not arrive.
func lostAnswer(t *testing.T, tx ending) error {
	if err := tx.commit(); err != nil {
		t.Errorf("commit: %v", err)
	}
	return io.ErrUnexpectedEOF
}

// lostRequest is a COMMIT that does not arrive: the server rolls back when the connection is gone.
func lostRequest(t *testing.T, tx ending) error {
	if err := tx.rollback(); err != nil {
		t.Errorf("roll back: %v", err)
	}
	return io.ErrUnexpectedEOF
}

// faultyConsumer is a consumer that publishes one message through Inbox.Publisher for each that it handles.
func (f *fixture) faultyConsumer(t *testing.T, db *faultyDB, config inbox.Config) *consumer {
	t.Helper()
	var c *consumer
	c = f.consumerOn(t, faulty(f.pool(t, 4), db), config, func(msg *message.Message) ([]*message.Message, error) {
		if _, err := f.writes(msg); err != nil {
			return nil, err
		}
		return nil, publish(msg.Context(), c.inbox, "of-"+msg.UUID)
	})
	return c
}

// publish writes one message to the outbox in the transaction of ctx.
func publish(ctx context.Context, box *inbox.Inbox, id string) error {
	msg := newMessage(id)
	msg.SetContext(ctx)
	return box.Publisher().Publish(outgoing, msg)
}
