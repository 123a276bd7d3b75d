package inboxtest

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

func tenCopiesAtOtherIsolations(t *testing.T, f *fixture) {
	for _, level := range f.features().Isolations {
		t.Run(level.String(), func(t *testing.T) {
			f.exec(t, "DELETE FROM "+inbox.DefaultMessagesTable)
			f.exec(t, "DELETE FROM biz")
			f.tenCopies(t, inbox.Config{TxOptions: &sql.TxOptions{Isolation: level}})
		})
	}
}

// serializationFailureIsRetried: the engine gives up one of two transactions, in a statement or in COMMIT, and the inbox runs it again.
func serializationFailureIsRetried(t *testing.T, f *fixture) {
	deliveries, seen := f.skewedWrites(t, inbox.Config{})
	for _, d := range deliveries {
		wantAck(t, d)
	}
	if seen.conflicts() == 0 {
		t.Fatal("the engine gave up no transaction, so the test shows nothing")
	}
	f.want(t, rows{biz: 2, inbox: 2})
}

// serializationFailureReachesTheCaller, who then redelivers.
func serializationFailureReachesTheCaller(t *testing.T, f *fixture) {
	deliveries, _ := f.skewedWrites(t, inbox.Config{ConflictRetries: -1})
	failed := slices.IndexFunc(deliveries, func(d delivery) bool { return d.err != nil })
	if failed < 0 {
		t.Fatal("the engine gave up no transaction, so the test shows nothing")
	}
	wantAck(t, deliveries[1-failed])
	wantNack(t, deliveries[failed])
	if err := deliveries[failed].err; inbox.IsPoison(err) || !inbox.IsRetryable(err) {
		t.Fatalf("want an error that is retryable (%t) and not poison (%t); got %v", inbox.IsRetryable(err), inbox.IsPoison(err), err)
	}
	f.want(t, rows{biz: 1, inbox: 1})
}

// skewedWrites delivers two messages, of which each handler reads what the other writes.
func (f *fixture) skewedWrites(t *testing.T, config inbox.Config) ([]delivery, *reports) {
	t.Helper()
	if !slices.Contains(f.features().Isolations, sql.LevelSerializable) {
		t.Skip("the engine has no other level than serial")
	}
	seen := &reports{}
	var (
		c       *consumer
		entered = make(chan struct{}, 2)
		both    = make(chan struct{})
	)
	config.TxOptions, config.Observer = &sql.TxOptions{Isolation: sql.LevelSerializable}, seen
	c = f.consumer(t, config, func(msg *message.Message) ([]*message.Message, error) {
		call := c.calls.Load()
		if err := countBiz(msg.Context()); err != nil {
			return nil, err
		}
		if call <= 2 {
			entered <- struct{}{}
			<-both
		}
		return f.writes(msg)
	})

	deliveries := make(chan []delivery, 1)
	go func() { deliveries <- c.deliverAll(newMessage("m1"), newMessage("m2")) }()
	receive(t, entered, "one handler")
	receive(t, entered, "the other handler")
	close(both)
	return receive(t, deliveries, "both deliveries"), seen
}

func countBiz(ctx context.Context) error {
	tx, _ := inbox.TxFromContext(ctx)
	result, err := tx.QueryContext(ctx, "SELECT COUNT(*) FROM biz")
	if err != nil {
		return err
	}
	result.Next()
	return result.Close()
}
