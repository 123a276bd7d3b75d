package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
)

var middlewareCases = []testCase{
	{name: "T44_EarlyAckAndCommit", run: earlyAckAndCommit},
	{name: "T44_EarlyAckAndFailedCommit", run: earlyAckAndFailedCommit},
	{name: "T44_OnEarlyAckRollsBack", run: onEarlyAckRollsBack},
	{name: "I1_HandlerNacksAndReturnsNil", run: handlerNacks},
	{name: "I1_SameInboxTwice", run: sameInboxTwice},
	{name: "I1_TwoConsumersAroundOneHandler", run: twoConsumersAroundOneHandler},
	{name: "I1_ContextLeaksThroughGoChannel", run: contextLeaks},
	{name: "I1_ContextLeaksIntoASkippedMessage", run: contextLeaksIntoSkipped},
	{name: "I1_Skip", run: skip},
	{name: "I2_ProcessOutcomes", run: processOutcomes},
	{name: "I12_IdempotencyKey", run: idempotencyKey},
}

// acksEarly is a handler that does what InstantAck does.
func (f *fixture) acksEarly(msg *message.Message) ([]*message.Message, error) {
	msg.Ack()
	return f.writes(msg)
}

func earlyAckAndCommit(t *testing.T, f *fixture) {
	asked := 0
	for _, onEarlyAck := range []func(*message.Message) error{nil, func(*message.Message) error { asked++; return nil }} {
		s := f.service(t, serviceOptions{config: inbox.Config{OnEarlyAck: onEarlyAck}}, f.acksEarly)
		id := "with the default"
		if onEarlyAck != nil {
			id = "with OnEarlyAck"
		}
		wantAck(t, s.deliver(t, newMessage(id)))
		if report := s.reports.last(); !report.EarlyAck || report.Outcome != inbox.Processed {
			t.Fatalf("%s: the early ack is not reported: %+v", id, report)
		}
		if len(s.log.Captured()[watermill.InfoLogLevel]) == 0 {
			t.Fatalf("%s: the early ack is not in the log", id)
		}
	}
	if asked != 1 {
		t.Fatalf("OnEarlyAck was called %d times, want 1", asked)
	}
	f.want(t, rows{biz: 2, inbox: 2})
}

// earlyAckAndFailedCommit loses the message, as it must, and says so.
func earlyAckAndFailedCommit(t *testing.T, f *fixture) {
	db := &faultyDB{commit: func(_ context.Context, _ int64, tx ending) error { return errors.Join(tx.rollback(), sql.ErrTxDone) }}
	s := f.service(t, serviceOptions{pool: faulty(f.pool(t, 4), db)}, f.acksEarly)
	d := s.deliver(t, newMessage("m1"))
	wantIs(t, d.err, inbox.ErrTransactionLost)
	if report := s.reports.last(); !report.EarlyAck || report.Outcome != 0 || report.Err == nil {
		t.Fatalf("report: %+v, want the early ack and the error", report)
	}
	s.wantErrorLogged(t, "m1")
	f.want(t, rows{})
}

func onEarlyAckRollsBack(t *testing.T, f *fixture) {
	s := f.service(t, serviceOptions{config: inbox.Config{OnEarlyAck: func(*message.Message) error { return errWanted }}}, f.acksEarly)
	d := s.deliver(t, newMessage("m1"))
	wantIs(t, d.err, errWanted)
	if report := s.reports.last(); !report.EarlyAck || report.Err == nil {
		t.Fatalf("report: %+v, want the early ack and the error", report)
	}
	f.want(t, rows{})
}

func handlerNacks(t *testing.T, f *fixture) {
	c := f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		msg.Nack()
		return f.writes(msg)
	})
	d := c.deliver(newMessage("m1"))
	wantNack(t, d)
	wantIs(t, d.err, inbox.ErrNacked)
	if inbox.IsPoison(d.err) {
		t.Fatalf("a nacked message is poison: %v", d.err)
	}
	f.want(t, rows{})
}

func sameInboxTwice(t *testing.T, f *fixture) {
	box := f.newInbox(t, f.pool(t, 4), inbox.Config{})
	f.refuseNested(t, box, box)
}

func twoConsumersAroundOneHandler(t *testing.T, f *fixture) {
	pool := f.pool(t, 4)
	f.refuseNested(t, f.newInbox(t, pool, inbox.Config{}), f.newInbox(t, pool, inbox.Config{Consumer: "mail"}))
}

func (f *fixture) refuseNested(t *testing.T, outer, inner *inbox.Inbox) {
	t.Helper()
	calls := 0
	handler := outer.Middleware(inner.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		calls++
		return f.writes(msg)
	}))
	d := deliver(handler, newMessage("m1"))
	wantNack(t, d)
	wantIs(t, d.err, inbox.ErrNested)
	if calls != 0 || inbox.IsPoison(d.err) || inbox.IsRetryable(d.err) {
		t.Fatalf("%d calls, poison %t, retryable %t: %v", calls, inbox.IsPoison(d.err), inbox.IsRetryable(d.err), d.err)
	}
	f.want(t, rows{})
}

// leak sends a message with the context of another one that is being handled, and returns it as its own consumer receives it.
func leak(t *testing.T, ctx context.Context) *message.Message { //nolint:revive // t comes first in this package
	channel := gochannel.NewGoChannel(gochannel.Config{PreserveContext: true, OutputChannelBuffer: 1}, watermill.NopLogger{})
	t.Cleanup(func() { _ = channel.Close() })
	received, err := channel.Subscribe(context.Background(), "internal")
	if err != nil {
		t.Error(err)
		return nil
	}
	msg := newMessage("leaked")
	msg.SetContext(ctx)
	if err := channel.Publish("internal", msg); err != nil {
		t.Error(err)
		return nil
	}
	return <-received
}

// contextLeaks handles the second message while the first one is being handled, and lets it fail: its row must not be in the other's transaction.
func contextLeaks(t *testing.T, f *fixture) {
	if !f.features().ConcurrentWriters {
		t.Skip("the second transaction would wait for the first one")
	}
	mail := f.consumer(t, inbox.Config{Consumer: "mail"}, func(msg *message.Message) ([]*message.Message, error) {
		return nil, errors.Join(f.write(msg.Context(), msg.UUID, 1), errWanted)
	})
	billing := f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		d := mail.deliver(leak(t, msg.Context()))
		if !errors.Is(d.err, errWanted) {
			t.Errorf("the leaked message: %v", d)
		}
		return f.writes(msg)
	})
	wantAck(t, billing.deliver(newMessage("m1")))
	mail.wantCalls(t, 1)
	if n := f.bizOf(t, "leaked"); n != 0 {
		t.Fatalf("%d rows of the failed message", n)
	}
	f.want(t, rows{biz: 1, inbox: 1})
}

func contextLeaksIntoSkipped(t *testing.T, f *fixture) {
	skipping := f.consumer(t, inbox.Config{Skip: func(*message.Message) bool { return true }}, func(msg *message.Message) ([]*message.Message, error) {
		if _, found := inbox.TxFromContext(msg.Context()); found {
			t.Error("the handler of a skipped message finds the transaction of another one")
		}
		return nil, nil
	})
	billing := f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		if d := skipping.deliver(leak(t, msg.Context())); !d.acked {
			t.Errorf("the skipped message: %v", d)
		}
		if _, found := inbox.TxFromContext(msg.Context()); !found {
			t.Error("the handler lost its own transaction")
		}
		return f.writes(msg)
	})
	wantAck(t, billing.deliver(newMessage("m1")))
	skipping.wantCalls(t, 1)
	f.want(t, rows{biz: 1, inbox: 1})
}

// skip hands messages to the handler as if there were no inbox: what they produce goes to the Router's publisher.
func skip(t *testing.T, f *fixture) {
	published := &recorder{}
	s := f.service(t, serviceOptions{
		publisher: published,
		config:    inbox.Config{Skip: func(msg *message.Message) bool { return msg.Metadata.Get("ignore") != "" }},
	}, func(msg *message.Message) ([]*message.Message, error) {
		if _, found := inbox.TxFromContext(msg.Context()); found {
			t.Error("there is a transaction for a skipped message")
		}
		return []*message.Message{newMessage("out")}, nil
	})
	for range 2 {
		msg := newMessage("m1")
		msg.Metadata.Set("ignore", "yes")
		wantAck(t, s.deliver(t, msg))
	}
	s.wantCalls(t, 2)
	if published.count() != 2 || published.topics[0] != outgoing {
		t.Fatalf("the Router published %d messages to %v", published.count(), published.topics)
	}
	f.want(t, rows{})
}

func processOutcomes(t *testing.T, f *fixture) {
	box := f.newInbox(t, f.pool(t, 4), inbox.Config{Skip: func(msg *message.Message) bool { return msg.UUID == "skipped" }})
	process := func(id string, fails error) (inbox.Outcome, error) {
		return box.Process(newMessage(id), func(ctx context.Context) error {
			if id == "skipped" {
				return fails
			}
			return errors.Join(f.write(ctx, id, 1), publish(ctx, box, "of-"+id), fails)
		})
	}
	for _, step := range []struct {
		id    string
		fails error
		want  inbox.Outcome
	}{
		{"m1", errWanted, 0},
		{"m1", nil, inbox.Processed},
		{"m1", nil, inbox.Duplicate},
		{"skipped", errWanted, 0},
		{"skipped", nil, inbox.Skipped},
		{"", nil, 0},
	} {
		outcome, err := process(step.id, step.fails)
		if outcome != step.want || (err == nil) != (step.want != 0) || step.fails != nil && !errors.Is(err, step.fails) {
			t.Fatalf("Process of %q: outcome %s, error %v; want outcome %s", step.id, outcome, err, step.want)
		}
	}
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
}

func idempotencyKey(t *testing.T, f *fixture) {
	var keys []string
	handler := func(fails error) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			key, ok := inbox.IdempotencyKey(msg.Context())
			if !ok || key == "" {
				t.Error("there is no idempotency key in the handler")
			}
			keys = append(keys, key)
			_, err := f.writes(msg)
			return nil, errors.Join(err, fails)
		}
	}
	pool := f.pool(t, 4)
	wantNack(t, f.consumerOn(t, pool, inbox.Config{}, handler(errWanted)).deliver(newMessage("m1")))
	wantAck(t, f.consumerOn(t, pool, inbox.Config{}, handler(nil)).deliver(newMessage("m1")))
	wantAck(t, f.consumerOn(t, pool, inbox.Config{}, handler(nil)).deliver(newMessage("m2")))
	wantAck(t, f.consumerOn(t, pool, inbox.Config{Consumer: "mail"}, handler(nil)).deliver(newMessage("m1")))
	if keys[0] != keys[1] {
		t.Fatalf("two deliveries of one message have the keys %s and %s", keys[0], keys[1])
	}
	if keys[1] == keys[2] || keys[1] == keys[3] || keys[2] == keys[3] {
		t.Fatalf("another message or consumer has the same key: %v", keys)
	}
	if _, ok := inbox.IdempotencyKey(context.Background()); ok {
		t.Fatal("there is a key without an inbox")
	}
	f.want(t, rows{biz: 3, inbox: 3})
}
