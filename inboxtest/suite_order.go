package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
)

// These are T10 and T13 once more: what the documentation says about other orders of the middlewares, and what is refused.
var orderCases = []testCase{
	{name: "T10_RetryInsideOnHandleIsRefused", run: retryInsideOnHandleIsRefused},
	{name: "T13_PanicIsPoisonWithTheRecovererInside", run: panicWith(recovererInside, 3, 1)},
	{name: "T13_RecovererOutsideHidesThePanic", run: panicWith(recovererOutside, 1, 0)},
	{name: "T13_RetryAroundThePoisonQueueNeverRetries", run: retryAroundPoisonQueue},
	{name: "T13_PlainPoisonQueueGivesUpWhatIsInFlight", run: plainPoisonQueue},
	{name: "T13_ShutdownInAStatementIsNotPoison", run: shutdownInAStatement},
}

// retryInsideOnHandleIsRefused has the handlers of cqrs processors behind a Retry that stands inside the inbox.
func retryInsideOnHandleIsRefused(t *testing.T, f *fixture) {
	for _, kind := range []string{"command", "event", "group"} {
		t.Run(kind, func(t *testing.T) {
			box := f.newInbox(t, f.pool(t, 2), inbox.Config{})
			r := newRouter(t, message.RouterConfig{})
			errs := r.errors()
			retryAll := retry(3)
			retryAll.ShouldRetry = nil
			r.AddMiddleware(box.Middleware, retryAll.Middleware)
			runs := 0
			f.addCQRS(t, r, kind, func(event *orderPlaced) error {
				runs++
				return errWanted
			})
			r.start(t)

			msg, err := cqrs.JSONMarshaler{}.Marshal(orderPlaced{"7"})
			if err != nil {
				t.Fatal(err)
			}
			wantNack(t, r.deliver(t, kind, msg))
			wantIs(t, receive(t, errs, "the error"), inbox.ErrRetryInside)
			if runs != 1 {
				t.Fatalf("the handler ran %d times in one transaction", runs)
			}
			f.want(t, rows{})
		})
	}
}

// addCQRS adds a handler of that kind that writes a row and then does as handle says.
func (f *fixture) addCQRS(t *testing.T, r *router, kind string, handle func(*orderPlaced) error) {
	t.Helper()
	effect := func(ctx context.Context, event *orderPlaced) error {
		return errors.Join(f.write(ctx, event.Order, 1), handle(event))
	}
	var err error
	switch kind {
	case "command":
		err = addCommand(r, kind, effect)
	case "event":
		err = addEvent(r, kind, effect)
	default:
		err = addGroup(r, kind, effect)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// panicWith delivers a message whose handler always panics.
func panicWith(order func(t *testing.T) ([]message.HandlerMiddleware, *recorder), calls int64, poison int) func(t *testing.T, f *fixture) {
	return func(t *testing.T, f *fixture) {
		outside, poisoned := order(t)
		s := f.service(t, serviceOptions{outside: outside}, func(msg *message.Message) ([]*message.Message, error) {
			if err := f.write(msg.Context(), msg.UUID, 1); err != nil {
				return nil, err
			}
			panic("always")
		})
		d := s.deliver(t, newMessage("m1"))
		s.wantCalls(t, calls)
		if poisoned.count() != poison || d.acked != (poison > 0) {
			t.Fatalf("%d poison messages, want %d; %v", poisoned.count(), poison, d)
		}
		f.want(t, rows{})
	}
}

func recovererInside(t *testing.T) ([]message.HandlerMiddleware, *recorder) {
	outside, poisoned := poisonQueue(t, 2)
	return append(outside, middleware.Recoverer), poisoned
}

// recovererOutside is an order that the documentation warns of: neither Retry nor the poison queue sees the panic, and the broker repeats the
// message without end.
func recovererOutside(t *testing.T) ([]message.HandlerMiddleware, *recorder) {
	outside, poisoned := poisonQueue(t, 2)
	return append([]message.HandlerMiddleware{middleware.Recoverer}, outside...), poisoned
}

// retryAroundPoisonQueue shows the damage of that order: the first failure is final, although the second run would have succeeded.
func retryAroundPoisonQueue(t *testing.T, f *fixture) {
	right, poisoned := poisonQueue(t, 3)
	var s *service
	s = f.service(t, serviceOptions{outside: []message.HandlerMiddleware{right[1], right[0]}}, func(msg *message.Message) ([]*message.Message, error) {
		_, err := f.writes(msg)
		if s.calls.Load() == 1 {
			err = errors.Join(err, errWanted)
		}
		return nil, err
	})
	wantAck(t, s.deliver(t, newMessage("m1")))
	s.wantCalls(t, 1)
	if poisoned.count() != 1 {
		t.Fatalf("%d poison messages, want the one that a retry would have saved", poisoned.count())
	}
	f.want(t, rows{})
}

// plainPoisonQueue shows the damage of a poison queue without the filter: a message is acked away because another instance was at work on it, which then
// failed. Only the poison queue has it now.
func plainPoisonQueue(t *testing.T, f *fixture) {
	poisoned := &recorder{}
	queue, err := middleware.PoisonQueue(poisoned, "poison")
	if err != nil {
		t.Fatal(err)
	}
	g := newGate()
	defer g.release()
	holder := f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		g.pass()
		return nil, errWanted
	})
	held := make(chan delivery, 1)
	go func() { held <- holder.deliver(newMessage("m1")) }()
	receive(t, g.entered, "the holder")

	s := f.service(t, serviceOptions{
		outside: []message.HandlerMiddleware{queue}, config: inbox.Config{WaitTimeout: 100 * time.Millisecond},
	}, f.writes)
	wantAck(t, s.deliver(t, newMessage("m1")))
	s.wantCalls(t, 0)
	g.release()
	wantNack(t, receive(t, held, "the holder's delivery"))
	if poisoned.count() != 1 {
		t.Fatalf("%d poison messages, want the one that was at no fault", poisoned.count())
	}
	f.want(t, rows{})

	// It is not marked, so it can be brought back.
	wantAck(t, f.consumer(t, inbox.Config{}, f.writes).deliver(poisoned.msgs[0].Copy()))
	f.want(t, rows{biz: 1, inbox: 1})
}

// shutdownInAStatement ends the message's context while the handler waits for the database, and returns nothing but what the driver makes of it.
func shutdownInAStatement(t *testing.T, f *fixture) {
	if f.features().SlowInsert == "" {
		t.Skip("the engine has no slow statement")
	}
	outside, poisoned := poisonQueue(t, 2)
	started := make(chan struct{}, 10)
	s := f.service(t, serviceOptions{outside: outside}, func(msg *message.Message) ([]*message.Message, error) {
		started <- struct{}{}
		if err := f.execInTx(msg.Context(), f.features().SlowInsert); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("the slow statement of %s was not interrupted", msg.UUID)
	})
	msg, cancel := newCancelledAfter(started)
	defer cancel()
	wantNotPoison(t, s, poisoned, msg)
	s.wantCalls(t, 1)
	f.waitForNoTransaction(t, "the interrupted transaction to end")
	f.want(t, rows{})
}
