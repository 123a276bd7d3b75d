package inboxtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
)

// These are T13: the poison queue around the inbox.
var poisonCases = []testCase{
	{name: "T13_PoisonAfterRetriesAndThenTheFix", run: poisonAfterRetries},
	{name: "T13_InFlightIsNotPoison", run: inFlightIsNotPoison},
	{name: "T13_ConflictIsNotPoison", run: conflictIsNotPoison},
	{name: "T13_UncertainCommitIsNotPoison", run: uncertainIsNotPoison},
	{name: "T13_ShutdownIsNotPoison", run: shutdownIsNotPoison},
	{name: "T13_PoisonQueueInsideMarksTheFailedMessage", run: poisonQueueInside},
}

// poisonQueue returns the middlewares in the recommended order, with what they publish.
func poisonQueue(t *testing.T, retries int) ([]message.HandlerMiddleware, *recorder) {
	t.Helper()
	poisoned := &recorder{}
	queue, err := middleware.PoisonQueueWithFilter(poisoned, "poison", inbox.IsPoison)
	if err != nil {
		t.Fatal(err)
	}
	return []message.HandlerMiddleware{queue, retry(retries).Middleware}, poisoned
}

func poisonAfterRetries(t *testing.T, f *fixture) {
	outside, poisoned := poisonQueue(t, 2)
	broken := true
	s := f.service(t, serviceOptions{outside: outside}, func(msg *message.Message) ([]*message.Message, error) {
		if err := f.write(msg.Context(), msg.UUID, 1); err != nil || !broken {
			return nil, err
		}
		return nil, errWanted
	})
	wantAck(t, s.deliver(t, newMessage("m1")))
	s.wantCalls(t, 3)
	if n := poisoned.count(); n != 1 {
		t.Fatalf("%d poison messages, want 1", n)
	}
	f.want(t, rows{})

	broken = false
	wantAck(t, s.deliver(t, poisoned.msgs[0].Copy()))
	s.wantCalls(t, 4)
	f.want(t, rows{biz: 1, inbox: 1})
}

// wantNotPoison delivers m1 and stops the test unless it is nacked and the poison queue stays empty.
func wantNotPoison(t *testing.T, s *service, poisoned *recorder, msg *message.Message) {
	t.Helper()
	d := s.deliver(t, msg)
	wantNack(t, d)
	if n := poisoned.count(); n != 0 {
		t.Fatalf("%d poison messages for %v", n, d.err)
	}
}

func inFlightIsNotPoison(t *testing.T, f *fixture) {
	outside, poisoned := poisonQueue(t, 1)
	g := newGate()
	defer g.release()
	holder := f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		g.pass()
		return f.writes(msg)
	})
	held := make(chan delivery, 1)
	go func() { held <- holder.deliver(newMessage("m1")) }()
	receive(t, g.entered, "the holder")

	s := f.service(t, serviceOptions{outside: outside, config: inbox.Config{WaitTimeout: 100 * time.Millisecond}}, f.writes)
	wantNotPoison(t, s, poisoned, newMessage("m1"))
	s.wantCalls(t, 0)
	g.release()
	wantAck(t, receive(t, held, "the holder's delivery"))
	f.want(t, rows{biz: 1, inbox: 1})
}

func conflictIsNotPoison(t *testing.T, f *fixture) {
	f.needsDeadlocks(t)
	outside, poisoned := poisonQueue(t, 0)
	s := f.service(t, serviceOptions{outside: outside, config: inbox.Config{ConflictRetries: -1}}, func(msg *message.Message) ([]*message.Message, error) {
		return nil, f.loseDeadlock(t, msg.Context())
	})
	wantNotPoison(t, s, poisoned, newMessage("m1"))
	s.wantCalls(t, 1)
	f.want(t, rows{})
}

func uncertainIsNotPoison(t *testing.T, f *fixture) {
	outside, poisoned := poisonQueue(t, 0)
	db := &faultyDB{commit: func(_ context.Context, _ int64, tx ending) error { return lostRequest(t, tx) }}
	s := f.service(t, serviceOptions{
		outside: outside,
		pool:    faulty(f.pool(t, 4), db),
		config:  inbox.Config{ResolveTimeout: 50 * time.Millisecond},
	}, f.writes)
	wantNotPoison(t, s, poisoned, newMessage("m1"))
	f.want(t, rows{})
}

// shutdownIsNotPoison ends the message's context while the handler runs, and before it.
func shutdownIsNotPoison(t *testing.T, f *fixture) {
	outside, poisoned := poisonQueue(t, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := f.service(t, serviceOptions{outside: outside}, func(msg *message.Message) ([]*message.Message, error) {
		cancel()
		<-msg.Context().Done()
		return nil, errors.Join(f.write(msg.Context(), msg.UUID, 1), msg.Context().Err())
	})
	for range 2 {
		msg := newMessage("m1")
		msg.SetContext(ctx)
		wantNotPoison(t, s, poisoned, msg)
	}
	s.wantCalls(t, 1)
	f.want(t, rows{})
}

// poisonQueueInside shows the damage of the wrong order: the queue turns the failure into a success, so the inbox marks a message that failed, with what
// it had written, and its poison copy counts as a duplicate.
func poisonQueueInside(t *testing.T, f *fixture) {
	poisoned := &recorder{}
	queue, err := middleware.PoisonQueue(poisoned, "poison")
	if err != nil {
		t.Fatal(err)
	}
	s := f.service(t, serviceOptions{inside: []message.HandlerMiddleware{queue}}, func(msg *message.Message) ([]*message.Message, error) {
		return nil, errors.Join(f.write(msg.Context(), msg.UUID, 1), errWanted)
	})
	wantAck(t, s.deliver(t, newMessage("m1")))
	f.want(t, rows{biz: 1, inbox: 1})
	wantAck(t, s.deliver(t, poisoned.msgs[0].Copy()))
	s.wantCalls(t, 1)
}
