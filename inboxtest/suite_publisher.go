package inboxtest

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// These are I9: the messages that a handler publishes itself, and what New refuses.
var publisherCases = []testCase{
	{name: "I9_PublisherOutsideATransaction", run: publisherOutside},
	{name: "I9_PublisherAfterTheHandler", run: publisherAfterTheHandler},
	{name: "I9_PublisherOfAnotherInbox", run: publisherOfAnotherInbox},
	{name: "I9_PublisherMixedContexts", run: publisherMixedContexts},
	{name: "I9_PublisherWithoutMessages", run: publisherWithoutMessages},
	{name: "I9_PublisherIgnoredError", run: publisherIgnoredError, variants: true},
	{name: "I9_PublisherAndReturnedMessages", run: publisherAndReturnedMessages},
	{name: "I9_EventBus", run: eventBus, variants: true},
	{name: "T07_OutboxThatWantsToCreateTables", run: outboxThatCreatesTables},
	{name: "I8_NewRefusesASingleConnection", run: newRefusesASingleConnection},
}

func publisherOutside(t *testing.T, f *fixture) {
	box := f.newInbox(t, f.pool(t, 2), inbox.Config{})
	wantIs(t, publish(context.Background(), box, "out"), inbox.ErrNoTransaction)
	wantIs(t, box.Publisher().Publish(outgoing, newMessage("out")), inbox.ErrNoTransaction)
	if err := box.Publisher().Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	f.want(t, rows{})
}

func publisherAfterTheHandler(t *testing.T, f *fixture) {
	var kept context.Context
	c := f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		kept = context.WithoutCancel(msg.Context())
		return f.writes(msg)
	})
	msg := newMessage("m1")
	wantAck(t, c.deliver(msg))
	wantIs(t, publish(kept, c.inbox, "out"), inbox.ErrNoTransaction)
	wantIs(t, publish(msg.Context(), c.inbox, "out"), inbox.ErrNoTransaction)
	f.want(t, rows{biz: 1, inbox: 1})
}

func publisherOfAnotherInbox(t *testing.T, f *fixture) {
	pool := f.pool(t, 2)
	other := f.newInbox(t, pool, inbox.Config{Consumer: "mail"})
	c := f.consumerOn(t, pool, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		_, err := f.writes(msg)
		return nil, errors.Join(err, publish(msg.Context(), other, "out"))
	})
	d := c.deliver(newMessage("m1"))
	wantNack(t, d)
	wantIs(t, d.err, inbox.ErrNoTransaction)
	f.want(t, rows{})
}

// publisherMixedContexts publishes two messages of which only the first belongs to the transaction. The handler ignores the error, but its effect must not
// be committed without its messages.
func publisherMixedContexts(t *testing.T, f *fixture) {
	var publishErr error
	var c *consumer
	c = f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		first, second := newMessage("out1"), newMessage("out2")
		first.SetContext(msg.Context())
		publishErr = c.inbox.Publisher().Publish(outgoing, first, second)
		return f.writes(msg)
	})
	d := c.deliver(newMessage("m1"))
	wantIs(t, publishErr, inbox.ErrNoTransaction)
	wantNack(t, d)
	wantIs(t, d.err, inbox.ErrNoTransaction)
	f.want(t, rows{})
}

func publisherWithoutMessages(t *testing.T, f *fixture) {
	var s *service
	s = f.service(t, serviceOptions{}, func(msg *message.Message) ([]*message.Message, error) {
		if err := s.inbox.Publisher().Publish(outgoing); err != nil {
			return nil, err
		}
		_, err := f.writes(msg)
		return []*message.Message{}, err
	})
	wantAck(t, s.deliver(t, newMessage("m1")))
	f.want(t, rows{biz: 1, inbox: 1})
}

// publisherIgnoredError publishes to a topic that has no table. On most engines the transaction would go on.
func publisherIgnoredError(t *testing.T, f *fixture) {
	var c *consumer
	c = f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		out := newMessage("out")
		out.SetContext(msg.Context())
		if err := c.inbox.Publisher().Publish("nowhere", out); err == nil {
			t.Error("the message went into a table that does not exist")
		}
		_ = f.write(msg.Context(), msg.UUID, 1)
		return nil, nil
	})
	d := c.deliver(newMessage("m1"))
	wantNack(t, d)
	wantText(t, d.err, "nowhere")
	f.want(t, rows{})
}

func publisherAndReturnedMessages(t *testing.T, f *fixture) {
	var s *service
	s = f.service(t, serviceOptions{}, func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{newMessage("returned")}, errors.Join(publish(msg.Context(), s.inbox, "published 1"), publish(msg.Context(), s.inbox, "published 2"))
	})
	wantAck(t, s.deliver(t, newMessage("m1")))
	stored := f.outboxRows(t)
	if len(stored) != 3 || stored[0].uuid != "published 1" || stored[1].uuid != "published 2" || stored[2].uuid != "returned" {
		t.Fatalf("rows of the outbox: %+v", stored)
	}
}

type orderPlaced struct{ Order string }

// eventBus is one bus for all handlers. It puts the context that Publish is given on its messages.
func eventBus(t *testing.T, f *fixture) {
	var bus *cqrs.EventBus
	c := f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		return nil, errors.Join(f.write(msg.Context(), msg.UUID, 1), bus.Publish(msg.Context(), orderPlaced{msg.UUID}))
	})
	var err error
	bus, err = cqrs.NewEventBusWithConfig(c.inbox.Publisher(), cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return outgoing, nil },
		Marshaler:            cqrs.JSONMarshaler{},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, msg := range []*message.Message{newMessage("m1"), newMessage("m1"), newMessage("m2")} {
		wantAck(t, c.deliver(msg))
	}
	wantIs(t, bus.Publish(context.Background(), orderPlaced{"m3"}), inbox.ErrNoTransaction)
	f.want(t, rows{biz: 2, inbox: 2, outbox: 2})
}

// outboxThatCreatesTables would commit the message's transaction on MySQL, and is refused everywhere, before the first message.
func outboxThatCreatesTables(t *testing.T, f *fixture) {
	config := wsql.PublisherConfig{SchemaAdapter: f.database.Outbox, AutoInitializeSchema: true}
	create := "CREATE TABLE made_by_factory (id INTEGER)"
	for name, factory := range map[string]inbox.OutboxFactory{
		"AutoInitializeSchema": inbox.SQLOutbox(config, watermill.NopLogger{}),
		"own statement": func(tx wsql.ContextExecutor) (message.Publisher, error) {
			_, err := tx.ExecContext(context.Background(), create)
			return &recorder{}, err
		},
		"no publisher": func(wsql.ContextExecutor) (message.Publisher, error) { return nil, nil },
		"error":        func(wsql.ContextExecutor) (message.Publisher, error) { return nil, errWanted },
	} {
		_, err := f.tryNewInbox(f.pool(t, 1), inbox.Config{Outbox: factory})
		if err == nil {
			t.Fatalf("New accepts an outbox of the kind: %s", name)
		}
		wantText(t, err, "Outbox")
	}
	f.exec(t, create) // it was not created
}

func newRefusesASingleConnection(t *testing.T, f *fixture) {
	conn, err := f.instance.Admin.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = f.tryNewInbox(Pool{DB: wsql.BeginnerFromStdSQL(conn)}, inbox.Config{})
	wantText(t, err, "*sql.Conn", "pool")
	if _, err := f.tryNewInbox(Pool{}, inbox.Config{}); err == nil {
		t.Fatal("New accepts no database at all")
	}
}
