package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/jackc/pgx/v5"

	"github.com/watermill-inbox/inbox"
)

// These are T10: Watermill's Retry on either side of the inbox.
var retryCases = []testCase{
	{name: "T10_RetryOutside", run: retryOutside(false)},
	{name: "T10_RetryOutsideResetsTheContext", run: retryOutside(true)},
	{name: "ContextAfterFailure", run: contextAfterFailure},
	{name: "T10_RetryInsideIsRefused", run: retryInsideIsRefused},
	{name: "T10_RetryInsideDamagesABareHandler", run: retryInsideDamagesABareHandler},
}

func retry(times int) middleware.Retry {
	return middleware.Retry{
		MaxRetries:      times,
		InitialInterval: time.Millisecond,
		Multiplier:      1,
		ShouldRetry:     func(p middleware.RetryParams) bool { return inbox.IsRetryable(p.Err) },
	}
}

type contextKey string

// retryOutside fails twice. Every attempt has a transaction of its own and a live context, although Timeout, inside, leaves a dead one behind.
func retryOutside(resetContext bool) func(t *testing.T, f *fixture) {
	return func(t *testing.T, f *fixture) {
		retry := retry(2)
		retry.ResetContextOnRetry = resetContext
		box := f.newInbox(t, f.pool(t, 4), inbox.Config{})
		attempts := 0
		handler := retry.Middleware(box.Middleware(middleware.Timeout(time.Minute)(func(msg *message.Message) ([]*message.Message, error) {
			attempts++
			if err := msg.Context().Err(); err != nil {
				t.Errorf("attempt %d has a dead context: %v", attempts, err)
			}
			if err := f.write(msg.Context(), fmt.Sprintf("try-%d", attempts), 1); err != nil {
				t.Errorf("attempt %d has no open transaction: %v", attempts, err)
			}
			msg.SetContext(context.WithValue(msg.Context(), contextKey("status"), attempts))
			if attempts < 3 {
				return nil, errWanted
			}
			return nil, nil
		})))

		msg := newMessage("m1")
		msg.SetContext(context.WithValue(context.Background(), contextKey("origin"), "entry"))
		wantAck(t, deliver(handler, msg))
		if attempts != 3 || f.bizOf(t, "try-3") != 1 {
			t.Fatalf("%d attempts, %d rows of the third", attempts, f.bizOf(t, "try-3"))
		}
		f.want(t, rows{biz: 1, inbox: 1})
		wantContextLeft(t, msg.Context(), 3)
	}
}

// wantContextLeft checks what the inbox leaves on a message: it ends as at entry, has the handler's values and no transaction.
func wantContextLeft(t *testing.T, ctx context.Context, status int) {
	t.Helper()
	if _, open := inbox.TxFromContext(ctx); open {
		t.Error("the message's context still leads to a transaction")
	}
	if _, limited := ctx.Deadline(); limited || ctx.Err() != nil || context.Cause(ctx) != nil {
		t.Errorf("the message's context was cancelled by the inbox: error %v, cause %v, deadline %t", ctx.Err(), context.Cause(ctx), limited)
	}
	child, cancel := context.WithCancel(ctx)
	defer cancel()
	if child.Err() != nil {
		t.Errorf("a context made of the message's is cancelled: %v", child.Err())
	}
	if ctx.Value(contextKey("origin")) != "entry" || ctx.Value(contextKey("status")) != status {
		t.Errorf("values of the context: origin %v, status %v", ctx.Value(contextKey("origin")), ctx.Value(contextKey("status")))
	}
}

// contextAfterFailure has handlers that store a status in the message's context, as for watermill-http. What was meant for a success must not be the
// answer to a failure.
func contextAfterFailure(t *testing.T, f *fixture) {
	for name, test := range map[string]struct {
		commit func(context.Context, int64, ending) error
		ends   func() error
		want   any
	}{
		"the handler returns an error": {nil, func() error { return errWanted }, "status"},
		"the handler panics":           {nil, func() error { panic(errWanted) }, nil},
		"COMMIT fails": {
			func(_ context.Context, _ int64, tx ending) error { return lostRequest(t, tx) },
			func() error { return nil }, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := faulty(f.pool(t, 4), &faultyDB{commit: test.commit})
			box := f.newInbox(t, pool, inbox.Config{ResolveTimeout: 100 * time.Millisecond})
			handler := middleware.Recoverer(box.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				msg.SetContext(context.WithValue(msg.Context(), contextKey("status"), "status"))
				return nil, test.ends()
			}))
			msg := newMessage("m1")
			wantNack(t, deliver(handler, msg))
			if left := msg.Context().Value(contextKey("status")); left != test.want {
				t.Fatalf("the status is %v, want %v", left, test.want)
			}
			f.want(t, rows{})
		})
	}
}

// typedHandlers are the helper's handlers that fit the pool. Each writes a row and fails the first time.
func (f *fixture) typedHandlers() map[string]message.HandlerFunc {
	runs := 0
	run := func(msg *message.Message) ([]*message.Message, error) {
		runs++
		return nil, errors.Join(f.write(msg.Context(), msg.UUID, runs), errWanted)
	}
	handlers := map[string]message.HandlerFunc{
		"HandleTx": inbox.HandleTx(func(msg *message.Message, _ wsql.Tx) ([]*message.Message, error) { return run(msg) }),
	}
	if f.features().Native {
		handlers["HandlePgxTx"] = inbox.HandlePgxTx(func(msg *message.Message, _ pgx.Tx) ([]*message.Message, error) { return run(msg) })
	} else {
		handlers["HandleStdTx"] = inbox.HandleStdTx(func(msg *message.Message, _ *sql.Tx) ([]*message.Message, error) { return run(msg) })
	}
	return handlers
}

func retryInsideIsRefused(t *testing.T, f *fixture) {
	retryAll := retry(3)
	retryAll.ShouldRetry = nil
	for name, handler := range f.typedHandlers() {
		t.Run(name, func(t *testing.T) {
			c := f.consumer(t, inbox.Config{}, retryAll.Middleware(handler))
			d := c.deliver(newMessage("m1"))
			wantNack(t, d)
			wantIs(t, d.err, inbox.ErrRetryInside)
			if inbox.IsPoison(d.err) || inbox.IsRetryable(d.err) {
				t.Fatalf("poison %t, retryable %t: %v", inbox.IsPoison(d.err), inbox.IsRetryable(d.err), d.err)
			}
			f.want(t, rows{})
		})
	}
}

// retryInsideDamagesABareHandler shows what the documentation warns of: the inbox cannot see that a bare handler ran twice, so the writes of the failed
// run are committed with those of the second.
func retryInsideDamagesABareHandler(t *testing.T, f *fixture) {
	tries := 0
	c := f.consumer(t, inbox.Config{}, retry(1).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		tries++
		if err := f.write(msg.Context(), fmt.Sprintf("try-%d", tries), 1); err != nil {
			return nil, err
		}
		if tries == 1 {
			return nil, errWanted
		}
		return nil, nil
	}))
	wantAck(t, c.deliver(newMessage("m1")))
	if f.bizOf(t, "try-1") != 1 || f.bizOf(t, "try-2") != 1 {
		t.Fatalf("want the rows of both runs; there are %d of try-1 and %d of try-2", f.bizOf(t, "try-1"), f.bizOf(t, "try-2"))
	}
	f.want(t, rows{biz: 2, inbox: 1})
}
