package inboxtest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// These are T09: the Router closes while a handler still runs.
var shutdownCases = []testCase{
	{name: "T09_RouterClosesWhileAHandlerRuns", run: routerCloses},
	{name: "T09_CloseTimeoutEndsBeforeTheHandler", run: closeTimeoutEnds(nil)},
	{name: "T09_CloseTimeoutEndsBeforeTheHandlerThatThenFails", run: closeTimeoutEnds(errWanted)},
}

// closingBroker ends the contexts of its messages with their subscription, as the brokers of Watermill do.
type closingBroker struct {
	*broker
	subscribed chan context.Context
}

// Subscribe is for the Router.
func (b closingBroker) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	b.subscribed <- ctx
	return b.broker.Subscribe(ctx, topic)
}

// instance is one instance of a service: a running Router with one handler behind an inbox, from topic incoming to topic outgoing.
type instance struct {
	*router
	ctx     context.Context // of its messages
	reports *reports
	calls   atomic.Int64 // of the handler
}

func (f *fixture) instanceOf(t *testing.T, config inbox.Config, closeTimeout time.Duration, handler message.HandlerFunc) *instance {
	t.Helper()
	i := &instance{router: newRouter(t, message.RouterConfig{CloseTimeout: closeTimeout}), reports: &reports{}}
	config.Observer = i.reports
	box := f.newInbox(t, f.pool(t, 4), config)
	i.AddMiddleware(box.Middleware)
	broker := closingBroker{i.broker, make(chan context.Context, 1)}
	i.AddHandler("handler", incoming, broker, outgoing, box.Publisher(), func(msg *message.Message) ([]*message.Message, error) {
		i.calls.Add(1)
		return handler(msg)
	})
	i.start(t)
	i.ctx = receive(t, broker.subscribed, "the subscription")
	return i
}

// send delivers a message and does not wait for its end.
func (i *instance) send(id string) *message.Message {
	msg := newMessage(id)
	msg.SetContext(i.ctx)
	i.broker.send(incoming, msg)
	return msg
}

// decided waits for the ack or nack.
func decided(t *testing.T, msg *message.Message) (acked bool) {
	t.Helper()
	select {
	case <-msg.Acked():
		return true
	case <-msg.Nacked():
		return false
	case <-time.After(patience):
		t.Fatalf("message %s is neither acked nor nacked", msg.UUID)
		return false
	}
}

// twoWrites is an effect of two rows and an outgoing message, with something between the rows. The second row is written with the context that
// the function returns.
func (f *fixture) twoWrites(between func(ctx context.Context) (context.Context, error)) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if err := f.write(msg.Context(), msg.UUID, 1); err != nil {
			return nil, err
		}
		ctx, failed := between(msg.Context())
		err := f.write(ctx, msg.UUID, 2)
		return []*message.Message{newMessage("of-" + msg.UUID)}, errors.Join(err, failed)
	}
}

// undisturbed handles a message as a service that goes on does.
func (f *fixture) undisturbed() message.HandlerFunc {
	return f.twoWrites(func(ctx context.Context) (context.Context, error) { return ctx, nil })
}

var complete = rows{biz: 2, inbox: 1, outbox: 1}

// routerCloses closes the Router between the two writes of a handler, and lets another instance have the message then.
func routerCloses(t *testing.T, f *fixture) {
	looks := func(ctx context.Context) context.Context { return ctx }
	for _, test := range []struct {
		name   string
		config inbox.Config
		writes func(ctx context.Context) context.Context // the context of the second write
		fails  error
		acked  bool
	}{
		{"looks at its context", inbox.Config{}, looks, nil, false},
		{"ignores its context", inbox.Config{}, context.WithoutCancel, nil, true},
		{"ignores its context and fails", inbox.Config{}, context.WithoutCancel, errWanted, false},
		{"is detached", inbox.Config{HandlerContext: inbox.Detached}, looks, nil, true},
		{"is detached and fails", inbox.Config{HandlerContext: inbox.Detached}, looks, errWanted, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, f.database, false)
			g := newGate()
			defer g.release()
			first := f.instanceOf(t, test.config, patience, f.twoWrites(func(ctx context.Context) (context.Context, error) {
				g.pass()
				if test.config.HandlerContext == inbox.Cancellable {
					<-ctx.Done() // a little later than that of the subscription, which it comes from
				}
				return test.writes(ctx), test.fails
			}))
			msg := first.send("m1")
			receive(t, g.entered, "the handler")
			closed := make(chan error, 1)
			go func() { closed <- first.Close() }()
			receive(t, first.ctx.Done(), "the end of the message's context")
			g.release()
			if err := receive(t, closed, "the Router to close"); err != nil {
				t.Fatalf("the Router did not wait for its handler: %v", err)
			}

			acked := decided(t, msg)
			if acked != test.acked {
				t.Fatalf("acked %t, want %t: %v", acked, test.acked, first.reports.last())
			}
			want, outcome := rows{}, inbox.Processed
			if acked {
				want, outcome = complete, inbox.Duplicate
			}
			f.want(t, want)
			f.wantRedelivery(t, outcome)
		})
	}
}

// wantRedelivery delivers m1 to a new instance.
func (f *fixture) wantRedelivery(t *testing.T, outcome inbox.Outcome) {
	t.Helper()
	next := f.instanceOf(t, inbox.Config{}, patience, f.undisturbed())
	if !decided(t, next.send("m1")) || next.reports.last().Outcome != outcome {
		t.Fatalf("want the redelivery acked as %s, got %v", outcome, next.reports.last())
	}
	f.want(t, complete)
}

// closeTimeoutEnds has a Router that does not wait long enough, so the broker delivers the message to another instance while its first handler
// still runs. That handler then ends with nil or an error.
func closeTimeoutEnds(failure error) func(t *testing.T, f *fixture) {
	return func(t *testing.T, f *fixture) {
		g := newGate()
		defer g.release()
		first := f.instanceOf(t, inbox.Config{}, time.Millisecond, f.twoWrites(func(ctx context.Context) (context.Context, error) {
			g.pass()
			return context.WithoutCancel(ctx), failure
		}))
		msg := first.send("m1")
		receive(t, g.entered, "the handler")
		if err := first.Close(); err == nil {
			t.Fatal("the Router waited for its handler, so the test shows nothing")
		}

		second := f.instanceOf(t, inbox.Config{WaitTimeout: patience}, patience, f.undisturbed())
		again := second.send("m1")
		if f.features().ConcurrentWriters { // else the test's own statements would have to wait, too
			f.waitForWaiters(t, 1)
			f.want(t, rows{})
		}
		g.release()
		if acked := decided(t, msg); acked != (failure == nil) {
			t.Fatalf("acked %t, its handler returned %v: %v", acked, failure, first.reports.last())
		}
		if !decided(t, again) {
			t.Fatalf("the redelivery was nacked: %v", second.reports.last())
		}
		if calls := first.calls.Load() + second.calls.Load(); calls == 1 != (failure == nil) || calls > 2 {
			t.Fatalf("the handler ran %d times, and first returned %v", calls, failure)
		}
		f.want(t, complete)
	}
}
