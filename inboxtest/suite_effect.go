package inboxtest

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

var effectCases = []testCase{
	{name: "I1_FailureLeavesNothing", run: failureLeavesNothing, variants: true},
	{name: "I1_FailedOutboxInsertLeavesNothing", run: failedOutboxInsertLeavesNothing, variants: true},
	{name: "T20_UniqueKeyOfTheHandler", run: uniqueKeyOfTheHandler, variants: true},
	{name: "T25_RedeliveryOfAFailedMessage", run: redeliveryOfAFailedMessage},
}

var errHandler = errors.New("handler failed")

func failureLeavesNothing(t *testing.T, f *fixture) {
	pool := f.pool(t, 2)
	outgoingMessages := []*message.Message{newMessage("out")}
	failures := map[string]func() ([]*message.Message, error){
		"error":          func() ([]*message.Message, error) { return nil, errHandler },
		"error-messages": func() ([]*message.Message, error) { return outgoingMessages, errHandler },
		"panic":          func() ([]*message.Message, error) { panic(errHandler) },
		"no-topic":       func() ([]*message.Message, error) { return outgoingMessages, nil },
	}
	for id, fail := range failures {
		c := f.consumerOn(t, pool, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
			if err := f.write(msg.Context(), id, 1); err != nil {
				return nil, err
			}
			return fail()
		})
		d := c.deliver(newMessage(id))
		wantNack(t, d)
		if d.err != errHandler && d.panic != errHandler && !errors.Is(d.err, inbox.ErrNoPublishTopic) { //nolint:errorlint // the very error
			t.Fatalf("the handler's failure is hidden: %v", d)
		}
		c.wantCalls(t, 1)
		f.want(t, rows{})
	}

	fixed := f.consumerOn(t, pool, inbox.Config{}, f.writes)
	for id := range failures {
		wantAck(t, fixed.deliver(newMessage(id)))
	}
	f.want(t, rows{biz: len(failures), inbox: len(failures)})
}

// failedOutboxInsertLeavesNothing: the outbox of topic nowhere has no table.
func failedOutboxInsertLeavesNothing(t *testing.T, f *fixture) {
	box := f.newInbox(t, f.pool(t, 2), inbox.Config{ConsumerPrefix: "shop/"})
	publish := func(msg *message.Message) error {
		out := newMessage("out")
		out.SetContext(msg.Context())
		return box.Publisher().Publish("nowhere", out)
	}
	r := newRouter(t, message.RouterConfig{})
	errs := r.errors()
	r.AddMiddleware(box.Middleware)
	r.AddHandler("returns", "returns", r.broker, "nowhere", box.Publisher(), func(msg *message.Message) ([]*message.Message, error) {
		return []*message.Message{newMessage("out")}, f.write(msg.Context(), msg.UUID, 1)
	})
	r.AddConsumerHandler("publishes", "publishes", r.broker, func(msg *message.Message) error {
		return errors.Join(f.write(msg.Context(), msg.UUID, 1), publish(msg))
	})
	r.AddConsumerHandler("swallows", "swallows", r.broker, func(msg *message.Message) error {
		err := f.write(msg.Context(), msg.UUID, 1)
		_ = publish(msg)
		return err
	})
	r.start(t)

	for _, handler := range []string{"returns", "publishes", "swallows"} {
		wantNack(t, r.deliver(t, handler, newMessage("m1")))
		err := receive(t, errs, "the error")
		if err == nil || errors.Is(err, inbox.ErrNoTransaction) || inbox.IsPoison(err) {
			t.Fatalf("want the error of the insert into the outbox, which is not the message's fault; got %v", err)
		}
		f.want(t, rows{})
	}
}

// uniqueKeyOfTheHandler: only the identity's own key tells a duplicate. Here another key is violated, by the same values even.
func uniqueKeyOfTheHandler(t *testing.T, f *fixture) {
	f.exec(t, "CREATE TABLE orders (id VARCHAR(64) NOT NULL PRIMARY KEY)")
	f.exec(t, "CREATE TABLE mirror (consumer VARCHAR(64) NOT NULL, producer VARCHAR(64) NOT NULL, message_id VARCHAR(64) NOT NULL,"+
		" PRIMARY KEY (consumer, producer, message_id))")
	pool := f.pool(t, 2)
	for n, statement := range []string{"INSERT INTO orders (id) VALUES ('7')", "INSERT INTO mirror (consumer, producer, message_id) VALUES ('billing', 'shop', 'm')"} {
		f.exec(t, statement)
		c := f.consumerOn(t, pool, inbox.Config{Identity: fromMetadata}, func(msg *message.Message) ([]*message.Message, error) {
			if err := f.write(msg.Context(), msg.UUID, n); err != nil {
				return nil, err
			}
			return nil, f.execInTx(msg.Context(), statement)
		})
		for range 2 {
			d := c.deliver(newMessageOf("shop", "m"))
			wantNack(t, d)
			if class := f.database.Schema("").Classify(d.err); class != inbox.ClassDuplicate || !inbox.IsPoison(d.err) {
				t.Fatalf("want the handler's error, which is poison (%t), of class %d; got class %d: %v", inbox.IsPoison(d.err), inbox.ClassDuplicate, class, d.err)
			}
			f.want(t, rows{})
		}
		c.wantCalls(t, 2)
	}
}

func redeliveryOfAFailedMessage(t *testing.T, f *fixture) {
	failed := false
	c := f.consumer(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		if err := f.write(msg.Context(), msg.UUID, 1); err != nil || failed {
			return nil, err
		}
		failed = true
		return nil, errHandler
	})
	wantNack(t, c.deliver(newMessage("m1")))
	f.want(t, rows{})
	wantAck(t, c.deliver(newMessage("m1")))
	f.want(t, rows{biz: 1, inbox: 1})
	wantAck(t, c.deliver(newMessage("m1")))
	c.wantCalls(t, 2)
	f.want(t, rows{biz: 1, inbox: 1})
}
