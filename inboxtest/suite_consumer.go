package inboxtest

import (
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

var consumerCases = []testCase{
	{name: "T15_KeyHasConsumerAndProducer", run: keyHasConsumerAndProducer},
	{name: "T43_FixedConsumerOfTwoHandlers", run: fixedConsumerOfTwoHandlers},
	{name: "T43_SharedConsumer", run: sharedConsumer},
	{name: "T43_ConsumerOfEachHandler", run: consumerOfEachHandler},
	{name: "I5_NoConsumer", run: noConsumer},
}

func keyHasConsumerAndProducer(t *testing.T, f *fixture) {
	pool := f.pool(t, 4)
	keys := []inbox.Row{
		{Consumer: "billing", ID: "m1"}, {Consumer: "mail", ID: "m1"},
		{Consumer: "billing", Producer: "shop", ID: "m1"}, {Consumer: "billing", Producer: "mail", ID: "m1"},
		{Consumer: "a", ID: "bc"}, {Consumer: "ab", ID: "c"},
		{Consumer: "a", ID: "b:c"}, {Consumer: "a:b", ID: "c"},
		{Consumer: "a", ID: "b/c"}, {Consumer: "a/b", ID: "c"},
		{Consumer: "a", ID: "b\x00c"}, {Consumer: "a\x00b", ID: "c"},
		{Consumer: "x", Producer: "a", ID: "bc"}, {Consumer: "x", Producer: "ab", ID: "c"}, {Consumer: "xa", Producer: "b", ID: "c"},
		{Consumer: "x", Producer: "a", ID: "b:c"}, {Consumer: "x", Producer: "a:b", ID: "c"}, {Consumer: "x", ID: "a:b:c"},
	}
	for n, key := range keys {
		c := f.consumerOn(t, pool, inbox.Config{Consumer: key.Consumer, Identity: fromMetadata}, f.writesStep)
		for range 3 {
			wantAck(t, c.deliver(newMessageOf(key.Producer, key.ID)))
		}
		c.wantCalls(t, 1)
		f.want(t, rows{biz: n + 1, inbox: n + 1})
	}
	f.wantStored(t, keys...)
}

// twoHandlers is a Router with the handlers "bill" and "mail" of one event behind one inbox.
func (f *fixture) twoHandlers(t *testing.T, config inbox.Config) (*router, <-chan error) {
	t.Helper()
	box := f.newInbox(t, f.pool(t, 2), config)
	r := newRouter(t, message.RouterConfig{})
	errs := r.errors()
	r.AddMiddleware(box.Middleware)
	for _, name := range []string{"bill", "mail"} {
		r.AddConsumerHandler(name, name, r.broker, func(msg *message.Message) error { return f.write(msg.Context(), name, 1) })
	}
	r.start(t)
	return r, errs
}

func fixedConsumerOfTwoHandlers(t *testing.T, f *fixture) {
	r, errs := f.twoHandlers(t, inbox.Config{Consumer: "billing"})
	wantAck(t, r.deliver(t, "bill", newMessage("m1")))
	if err := receive(t, errs, "the first handler"); err != nil {
		t.Fatal(err)
	}

	for _, id := range []string{"m1", "m2"} {
		wantNack(t, r.deliver(t, "mail", newMessage(id)))
		err := receive(t, errs, "the second handler's error")
		if !errors.Is(err, inbox.ErrConsumerShared) || inbox.IsPoison(err) || inbox.IsRetryable(err) {
			t.Fatalf("want ErrConsumerShared, neither poison nor retryable; got %v", err)
		}
		wantWords(t, err, `"billing"`, `"bill"`, `"mail"`)
	}
	f.want(t, rows{biz: 1, inbox: 1})

	wantAck(t, r.deliver(t, "bill", newMessage("m2")))
	f.want(t, rows{biz: 2, inbox: 2})
}

// sharedConsumer: the user has said that either handler may process a message.
func sharedConsumer(t *testing.T, f *fixture) {
	r, _ := f.twoHandlers(t, inbox.Config{Consumer: "billing", ShareConsumer: true})
	wantAck(t, r.deliver(t, "bill", newMessage("m1")))
	wantAck(t, r.deliver(t, "mail", newMessage("m1")))
	wantAck(t, r.deliver(t, "mail", newMessage("m2")))
	wantAck(t, r.deliver(t, "bill", newMessage("m2")))
	f.want(t, rows{biz: 2, inbox: 2})
	if bill, mail := f.bizOf(t, "bill"), f.bizOf(t, "mail"); bill != 1 || mail != 1 {
		t.Fatalf("bill processed %d messages and mail %d, want the one that came first to each", bill, mail)
	}
}

func consumerOfEachHandler(t *testing.T, f *fixture) {
	r, _ := f.twoHandlers(t, inbox.Config{ConsumerPrefix: "shop/"})
	for range 2 {
		wantAck(t, r.deliver(t, "bill", newMessage("m1")))
		wantAck(t, r.deliver(t, "mail", newMessage("m1")))
	}
	f.want(t, rows{biz: 2, inbox: 2})
	f.wantStored(t, inbox.Row{Consumer: "shop/bill", ID: "m1"}, inbox.Row{Consumer: "shop/mail", ID: "m1"})

	// Another instance of the service, and another service.
	same, _ := f.twoHandlers(t, inbox.Config{ConsumerPrefix: "shop/"})
	wantAck(t, same.deliver(t, "bill", newMessage("m1")))
	f.want(t, rows{biz: 2, inbox: 2})
	other, _ := f.twoHandlers(t, inbox.Config{ConsumerPrefix: "depot/"})
	wantAck(t, other.deliver(t, "bill", newMessage("m1")))
	f.want(t, rows{biz: 3, inbox: 3})
}

// noConsumer: outside a Router there is no handler's name. That is no fault of the message.
func noConsumer(t *testing.T, f *fixture) {
	c := f.consumer(t, inbox.Config{ConsumerPrefix: "shop/"}, f.writes)
	d := c.deliver(newMessage("m1"))
	wantNack(t, d)
	if !errors.Is(d.err, inbox.ErrNoConsumer) || inbox.IsPoison(d.err) || inbox.IsRetryable(d.err) {
		t.Fatalf("want ErrNoConsumer, neither poison nor retryable; got %v", d.err)
	}
	c.wantCalls(t, 0)
	f.want(t, rows{})
}
