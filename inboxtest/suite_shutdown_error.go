package inboxtest

import (
	"context"
	"errors"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// These are T45: what a shutdown makes of the messages that are being handled.
var shutdownErrorCases = []testCase{
	{name: "T45_ShutdownIsNotPoisonWhateverTheHandlerReturns", run: shutdownWithAnotherError},
}

// shutdownWithAnotherError has handlers that fail because their context has ended and do not say so, as status errors of gRPC do not. A detached handler
// knows nothing of that context, so its error is its own.
func shutdownWithAnotherError(t *testing.T, f *fixture) {
	for _, test := range []struct {
		kind   inbox.HandlerContext
		poison int
	}{{inbox.Cancellable, 0}, {inbox.Detached, 1}} {
		outside, poisoned := poisonQueue(t, 0)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		handler := func(msg *message.Message, tx wsql.Tx) ([]*message.Message, error) {
			_, err := tx.ExecContext(msg.Context(), f.insertBiz(), msg.UUID, 1)
			cancel()
			return nil, errors.Join(err, errWanted)
		}
		s := f.service(t, serviceOptions{outside: outside, config: inbox.Config{HandlerContext: test.kind}}, inbox.HandleTx(handler))
		msg := newMessage("m1")
		msg.SetContext(ctx)
		d := s.deliver(t, msg)
		if poisoned.count() != test.poison || d.nacked == (test.poison > 0) {
			t.Fatalf("HandlerContext %d: %d poison messages, want %d; %v", test.kind, poisoned.count(), test.poison, d)
		}
		f.want(t, rows{})
	}
}
