package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
)

// These are I9: the messages that a handler returns.
var outboxCases = []testCase{
	{name: "T11_FailingRouterPublisher", run: failingRouterPublisher, variants: true},
	{name: "T12_DuplicateProducesNothing", run: duplicateProducesNothing, variants: true},
	{name: "I9_OrderTopicAndCorrelationID", run: orderTopicAndCorrelationID, variants: true},
	{name: "I9_DecoratorsSeeTheHandlersContext", run: decoratorsSeeTheHandlersContext},
	{name: "I9_FailedInsert", run: failedInsert},
	{name: "I9_MissingOutboxTable", run: missingOutboxTable, variants: true},
	{name: "I9_NoOutbox", run: noOutbox},
	{name: "I9_NoPublishTopic", run: noPublishTopic},
	{name: "I9_LongUUID", run: longUUID, variants: true},
	{name: "I9_PayloadThatIsNotJSON", run: payloadThatIsNotJSON, variants: true},
	{name: "I9_ManyMessages", run: manyMessages},
	{name: "I9_PassthroughHandler", run: passthroughHandler},
}

// produces is a handler that writes a row and returns messages.
func (f *fixture) produces(msgs ...*message.Message) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		_, err := f.writes(msg)
		return msgs, err
	}
}

func failingRouterPublisher(t *testing.T, f *fixture) {
	published := &recorder{err: errWanted}
	s := f.service(t, serviceOptions{publisher: published}, f.produces(newMessage("out1"), newMessage("out2")))
	wantAck(t, s.deliver(t, newMessage("m1")))
	if n := published.count(); n != 0 {
		t.Fatalf("the Router's publisher got %d messages", n)
	}
	f.want(t, rows{biz: 1, inbox: 1, outbox: 2})
}

func duplicateProducesNothing(t *testing.T, f *fixture) {
	s := f.service(t, serviceOptions{}, f.produces(newMessage("out")))
	for range 5 {
		wantAck(t, s.deliver(t, newMessage("m1")))
	}
	s.wantCalls(t, 1)
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
}

func orderTopicAndCorrelationID(t *testing.T, f *fixture) {
	var out []*message.Message
	for n := range 20 {
		out = append(out, newMessage(fmt.Sprintf("out-%02d", n)))
	}
	out[3].Metadata.Set("own", "value")
	out[4].Metadata = nil
	msg := newMessage("m1")
	middleware.SetCorrelationID("the-correlation", msg)

	wantAck(t, f.service(t, serviceOptions{}, f.produces(out...)).deliver(t, msg))
	f.want(t, rows{biz: 1, inbox: 1, outbox: 20})
	for n, row := range f.outboxRows(t) {
		if row.uuid != fmt.Sprintf("out-%02d", n) || !strings.Contains(row.metadata, "the-correlation") {
			t.Fatalf("row %d of the outbox: %+v", n, row)
		}
		if strings.Contains(row.metadata, "value") != (n == 3) {
			t.Fatalf("row %d of the outbox has the metadata %s", n, row.metadata)
		}
	}
}

// contextRecorder is a decorator that looks at the contexts of what it passes on.
type contextRecorder struct {
	message.Publisher
	seen *[]string
}

func (r contextRecorder) Publish(topic string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		ctx := msg.Context()
		_, tx := inbox.TxFromContext(ctx)
		*r.seen = append(*r.seen, fmt.Sprintf("%s: trace %v, handler %s, error %v, transaction %t",
			topic, ctx.Value(contextKey("trace")), message.HandlerNameFromCtx(ctx), ctx.Err(), tx))
	}
	return r.Publisher.Publish(topic, msgs...)
}

// decoratorsSeeTheHandlersContext is for tracing: a produced message has the values of its own context and else those of the message that was handled.
func decoratorsSeeTheHandlersContext(t *testing.T, f *fixture) {
	var seen []string
	decorator := func(next message.Publisher) (message.Publisher, error) { return contextRecorder{next, &seen}, nil }
	inherits, own := newMessage("out1"), newMessage("out2")
	own.SetContext(context.WithValue(context.Background(), contextKey("trace"), "own"))
	before := own.Context()
	s := f.service(t, serviceOptions{config: inbox.Config{OutboxDecorators: []message.PublisherDecorator{decorator}}}, f.produces(inherits, own))
	msg := newMessage("m1")
	msg.SetContext(context.WithValue(context.Background(), contextKey("trace"), "incoming"))
	wantAck(t, s.deliver(t, msg))

	want := []string{
		"outgoing: trace incoming, handler handler, error <nil>, transaction false",
		"outgoing: trace own, handler handler, error <nil>, transaction false",
	}
	if !slices.Equal(seen, want) {
		t.Fatalf("the decorator saw %q, want %q", seen, want)
	}
	if own.Context() != before {
		t.Fatal("the produced message was left with another context")
	}
	f.want(t, rows{biz: 1, inbox: 1, outbox: 2})
}

func failedInsert(t *testing.T, f *fixture) {
	s := f.service(t, serviceOptions{config: inbox.Config{Outbox: failingOutbox}}, f.produces(newMessage("out")))
	d := s.deliver(t, newMessage("m1"))
	wantNack(t, d)
	wantIs(t, d.err, errWanted)
	wantText(t, d.err, "outbox", `"m1"`)
	f.want(t, rows{})
}

func missingOutboxTable(t *testing.T, f *fixture) {
	table := f.database.Outbox.MessagesTable(outgoing)
	f.exec(t, "DROP TABLE "+table)
	s := f.service(t, serviceOptions{}, f.produces(newMessage("out")))
	d := s.deliver(t, newMessage("m1"))
	wantNack(t, d)
	if inbox.IsPoison(d.err) {
		t.Fatalf("a message is poison because a table is missing: %v", d.err)
	}
	f.createOutbox(t)
	f.want(t, rows{})
	wantAck(t, s.deliver(t, newMessage("m1")))
	f.want(t, rows{biz: 1, inbox: 1, outbox: 1})
}

// wantNotProduced stops the test unless the delivery failed because of its outgoing messages and left nothing.
func (f *fixture) wantNotProduced(t *testing.T, d delivery, want error) {
	t.Helper()
	wantNack(t, d)
	wantIs(t, d.err, want)
	if inbox.IsPoison(d.err) || inbox.IsRetryable(d.err) {
		t.Fatalf("poison %t, retryable %t: %v", inbox.IsPoison(d.err), inbox.IsRetryable(d.err), d.err)
	}
	f.want(t, rows{})
}

func noOutbox(t *testing.T, f *fixture) {
	config := f.withDefaults(inbox.Config{})
	config.Outbox = nil
	box, err := inbox.New(f.pool(t, 2).DB, config, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	f.wantNotProduced(t, deliver(box.Middleware(f.produces(newMessage("out"))), newMessage("m1")), inbox.ErrNoOutbox)
	f.wantNotProduced(t, deliver(box.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		_ = publish(msg.Context(), box, "out") // the error must not be lost
		return f.writes(msg)
	}), newMessage("m1")), inbox.ErrNoOutbox)
}

func noPublishTopic(t *testing.T, f *fixture) {
	c := f.consumer(t, inbox.Config{}, f.produces(newMessage("out")))
	f.wantNotProduced(t, c.deliver(newMessage("m1")), inbox.ErrNoPublishTopic)
}

// limited tells whether the outbox is a table of watermill-sql itself, with a UUID of 36 characters and JSON as payload.
func (f *fixture) limited(t *testing.T) bool {
	t.Helper()
	switch f.database.Outbox.(type) {
	case wsql.DefaultPostgreSQLSchema, wsql.DefaultMySQLSchema:
		return true
	case interface{ PayloadColumnType(topic string) string }:
		t.Skip("the schema is made of watermill-sql's, but the inbox cannot know what it changes")
	}
	return false
}

// tooMuchForTheOutbox delivers a message whose handler produces one that the outbox may not be able to store.
func (f *fixture) tooMuchForTheOutbox(t *testing.T, out *message.Message, texts ...string) {
	t.Helper()
	s := f.service(t, serviceOptions{}, f.produces(newMessage("fits"), out))
	d := s.deliver(t, newMessage("m1"))
	if !f.limited(t) {
		wantAck(t, d)
		stored := f.outboxRows(t)
		if len(stored) != 2 || stored[1].uuid != out.UUID || stored[1].payload != string(out.Payload) {
			t.Fatalf("rows of the outbox: %+v", stored)
		}
		return
	}
	wantNack(t, d)
	wantText(t, d.err, append(texts, out.UUID)...)
	f.want(t, rows{})
}

func longUUID(t *testing.T, f *fixture) {
	f.tooMuchForTheOutbox(t, newMessage(strings.Repeat("u", 37)), "36", "UUID")
}

func payloadThatIsNotJSON(t *testing.T, f *fixture) {
	f.tooMuchForTheOutbox(t, newMessageWith("out", "not JSON"), "JSON", "GeneratePayloadType")
}

// manyMessages are more than one statement can take on any engine.
func manyMessages(t *testing.T, f *fixture) {
	many := 25_000
	if !f.features().ConcurrentWriters {
		many = 5_000 // with the race detector SQLite in Go needs half a minute for more
	}
	out := make([]*message.Message, many)
	for n := range out {
		out[n] = newMessageWith(fmt.Sprint(n), "{}")
	}
	var s *service
	s = f.service(t, serviceOptions{config: inbox.Config{CommitTimeout: patience}}, func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		if err := f.write(ctx, msg.UUID, 1); err != nil {
			return nil, err
		}
		if s.calls.Load() == 1 {
			return out, nil
		}
		for _, msg := range out {
			msg.SetContext(ctx)
		}
		return nil, errors.Join(s.inbox.Publisher().Publish(outgoing, out...), errWanted)
	})
	wantAck(t, s.deliver(t, newMessage("m1")))
	f.want(t, rows{biz: 1, inbox: 1, outbox: many})
	wantNack(t, s.deliver(t, newMessage("m2")))
	f.want(t, rows{biz: 1, inbox: 1, outbox: many})
}

func passthroughHandler(t *testing.T, f *fixture) {
	s := f.service(t, serviceOptions{}, message.PassthroughHandler)
	msg := newMessage("m1")
	msg.SetContext(context.WithValue(context.Background(), contextKey("origin"), "entry"))
	wantAck(t, s.deliver(t, msg))
	if _, open := inbox.TxFromContext(msg.Context()); open || msg.Context().Value(contextKey("origin")) != "entry" {
		t.Fatal("the message was not left with its own context")
	}
	if stored := f.outboxRows(t); len(stored) != 1 || stored[0].uuid != "m1" || stored[0].payload == "" {
		t.Fatalf("rows of the outbox: %+v", stored)
	}
	wantAck(t, s.deliver(t, newMessage("m1")))
	f.want(t, rows{inbox: 1, outbox: 1})
}
