package inbox

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

type contextKey struct{}

// holder carries the transaction of one attempt from the Inbox to its handler. It is emptied when the handler returns, so that a
// context that outlives the handler leads nowhere.
type holder struct {
	inbox *Inbox
	msg   *message.Message
	row   Row

	publish func(topic string, msgs message.Messages) error

	mu         sync.Mutex
	tx         wsql.Tx
	failure    error // set once: the attempt must not commit
	entered    []any // handlers that ran in this transaction
	publishing sync.WaitGroup
}

func holderFromContext(ctx context.Context) *holder {
	h, _ := ctx.Value(contextKey{}).(*holder)
	return h
}

// open returns the transaction, or nil when the handler has returned.
func (h *holder) open() wsql.Tx {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tx
}

// empty ends the handler's access to the transaction and returns what must stop the commit. It waits for a
// publication that is under way.
func (h *holder) empty() error {
	h.mu.Lock()
	h.tx = nil
	h.mu.Unlock()
	h.publishing.Wait()

	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failure
}

// fail makes sure that the attempt does not commit, even if the code between here and the Inbox hides the error.
func (h *holder) fail(err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure == nil {
		h.failure = err
	}
	return err
}

// failUnless makes sure that the attempt does not commit unless fn succeeds: it may fail, panic or end its goroutine, and the code between here and the
// Inbox may hide that.
func (h *holder) failUnless(what string, fn func() error) error {
	outcome := errors.New(what + " panicked")
	defer func() {
		if outcome != nil {
			_ = h.fail(outcome)
		}
	}()
	outcome = fn()
	return outcome
}

// TxFromContext returns the transaction of the message being handled, whatever the database. The second value is false outside a
// handler of an Inbox and after the handler has returned.
//
// Commit and Rollback of the returned transaction are refused and make the delivery fail with ErrTransactionLost: the
// Inbox ends the transaction. To roll back, return an error.
func TxFromContext(ctx context.Context) (wsql.Tx, bool) {
	h := holderFromContext(ctx)
	tx := h.open()
	if tx == nil {
		return nil, false
	}
	return guardedTx{Tx: tx, holder: h}, true
}

// StdTxFromContext returns the transaction of the message being handled if the Inbox was made with database/sql
// (wsql.BeginnerFromStdSQL). The second value is false otherwise, outside a handler and after the handler has returned.
//
// Do not call Commit or Rollback: *sql.Tx cannot refuse them, the delivery fails with ErrTransactionLost, and what was
// committed so stays.
func StdTxFromContext(ctx context.Context) (*sql.Tx, bool) {
	switch tx := holderFromContext(ctx).open().(type) {
	case *wsql.StdSQLTx:
		return tx.Tx, true
	case wsql.StdSQLTx:
		return tx.Tx, true
	default:
		return nil, false
	}
}

// PgxTxFromContext returns the transaction of the message being handled if the Inbox was made with pgx
// (wsql.BeginnerFromPgx). The second value is false otherwise, outside a handler and after the handler has returned.
//
// Its Begin opens a savepoint, as usual. Its own Commit and Rollback are refused as in TxFromContext.
func PgxTxFromContext(ctx context.Context) (pgx.Tx, bool) {
	h := holderFromContext(ctx)
	tx, ok := sqltx.Native(h.open())
	if !ok {
		return nil, false
	}
	return guardedPgxTx{Tx: tx, holder: h}, true
}

// IdempotencyKey returns a key for calls to other systems that the transaction cannot cover: the same for every delivery of the same
// (consumer, producer, id), different for any other. It is 64 hexadecimal digits, so it fits a header. The second value
// is false if the context did not come from an Inbox.
func IdempotencyKey(ctx context.Context) (string, bool) {
	h := holderFromContext(ctx)
	if h == nil {
		return "", false
	}
	sum := sha256.New()
	for _, part := range []string{h.row.Consumer, h.row.Producer, h.row.ID} {
		writeField(sum, part)
	}
	return hex.EncodeToString(sum.Sum(nil)), true
}

// HandleOnce runs fn as one run of a handler in the transaction of ctx. It is the seam for adapters to other handler
// frameworks. It refuses a second run of the same handler in one transaction with ErrRetryInside, and makes sure that the
// transaction is rolled back if fn fails or panics, even if the framework hides that from the Inbox.
//
// The handler is any comparable value that stands for the handler. Without an Inbox around it, HandleOnce returns ErrNoTransaction.
func HandleOnce(ctx context.Context, handler any, fn func() error) error {
	h := holderFromContext(ctx)
	if err := h.enter(handler); err != nil {
		return err
	}
	return h.failUnless("the handler", fn)
}

func (h *holder) enter(handler any) error {
	if h.open() == nil {
		return ErrNoTransaction
	}
	h.mu.Lock()
	again := slices.Contains(h.entered, handler)
	h.entered = append(h.entered, handler)
	if again {
		h.failure = ErrRetryInside // in place of the error of the first run, which led here
	}
	h.mu.Unlock()
	if again {
		return ErrRetryInside
	}
	return nil
}

var errHandlerEnded = fmt.Errorf("%w: the handler called Commit or Rollback, which is the inbox's part; return an error to roll back",
	ErrTransactionLost)

// guardedTx and guardedPgxTx refuse to end the transaction, and remember that the handler wanted it.
type guardedTx struct {
	wsql.Tx
	holder *holder
}

func (t guardedTx) Commit() error   { return t.holder.fail(errHandlerEnded) }
func (t guardedTx) Rollback() error { return t.holder.fail(errHandlerEnded) }

type guardedPgxTx struct {
	pgx.Tx
	holder *holder
}

func (t guardedPgxTx) Commit(context.Context) error   { return t.holder.fail(errHandlerEnded) }
func (t guardedPgxTx) Rollback(context.Context) error { return t.holder.fail(errHandlerEnded) }

// splitContext ends when one context ends and has the values of others.
type splitContext struct {
	lifetime context.Context
	values   context.Context
	fallback context.Context // may be nil
}

func (c splitContext) Deadline() (time.Time, bool) { return c.lifetime.Deadline() }
func (c splitContext) Done() <-chan struct{}       { return c.lifetime.Done() }
func (c splitContext) Err() error                  { return c.lifetime.Err() }

func (c splitContext) Value(key any) any {
	if value := c.values.Value(key); value != nil || c.fallback == nil {
		return value
	}
	return c.fallback.Value(key)
}
