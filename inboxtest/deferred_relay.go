package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

// These are the deferred mode's own queue as the outbox.
var relayCases = []testCase{
	{name: "D5_OutboxCommitsWithTheEffect", run: testOutboxInTransaction, variants: true},
	{name: "D5_OutboxOfADeferredHandler", run: testOutboxOfDeferred, variants: true},
	{name: "D5_OutboxIsRelayed", run: testRelay},
	{name: "D5_OutboxDelayAndSize", run: testOutboxDelayAndSize},
	{name: "D5_OutboxForwarder", run: testOutboxForwarder},
}

// outboxConfig completes the configuration of an Outbox whose table exists afterwards.
func (f *fixture) outboxConfig(t *testing.T, config deferred.OutboxConfig) deferred.OutboxConfig {
	t.Helper()
	config.Schema = f.database.Schema("")
	if err := deferred.InitializeOutbox(context.Background(), f.pool(t, 2).DB, config.Schema); err != nil {
		t.Fatal(err)
	}
	return config
}

// producer is a consumer that writes a row and publishes what a test wants, through Inbox.Publisher into an Outbox. After publishing it does what
// after says.
func (f *fixture) producer(t *testing.T, config deferred.OutboxConfig, produced func(msg *message.Message) []*message.Message, after func() error) *consumer {
	t.Helper()
	var c *consumer
	c = f.consumer(t, inbox.Config{Outbox: deferred.Outbox(f.outboxConfig(t, config))}, func(msg *message.Message) ([]*message.Message, error) {
		if _, err := f.writes(msg); err != nil {
			return nil, err
		}
		for _, out := range produced(msg) {
			out.SetContext(msg.Context())
			if err := c.inbox.Publisher().Publish(outgoing, out); err != nil {
				return nil, err
			}
		}
		if after != nil {
			return nil, after()
		}
		return nil, nil
	})
	return c
}

// wantOutgoing stops the test unless the queue of outgoing messages, and the other tables, have so many rows.
func (f *fixture) wantOutgoing(t *testing.T, want int, others rows) {
	t.Helper()
	if got := f.outgoing(t); got != want {
		t.Fatalf("%d rows in the outbox, want %d", got, want)
	}
	f.want(t, others)
}

func (f *fixture) outgoing(t *testing.T) int {
	t.Helper()
	return f.number(t, "SELECT COUNT(*) FROM "+deferred.DefaultOutgoingTable)
}

func (f *fixture) waitForOutgoing(t *testing.T, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d rows in the outbox", want), func() bool { return f.outgoing(t) == want })
}

// relaySubscriber is a Subscriber of the outbox.
func (f *fixture) relaySubscriber(t *testing.T, config deferred.SubscriberConfig) *deferred.Subscriber {
	t.Helper()
	config.Schema, config.Consumer, config.Queue, config.AutoInitializeSchema = f.database.Schema(""), deferred.DefaultRelay, deferred.Outgoing, true
	setDefault(&config.InitialBackoff, 10*time.Millisecond)
	setDefault(&config.MaxBackoff, max(config.InitialBackoff, 50*time.Millisecond))
	setDefault(&config.PollInterval, 50*time.Millisecond)
	subscriber, err := deferred.NewSubscriber(f.pool(t, 8).DB, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return subscriber
}

// relay runs a Router from the outbox to a broker until the end of the test.
func (f *fixture) relay(t *testing.T, config deferred.SubscriberConfig, broker message.Publisher) {
	t.Helper()
	r := newRouter(t, message.RouterConfig{CloseTimeout: patience})
	r.AddHandler("relay", outgoing, f.relaySubscriber(t, config), outgoing, broker, message.PassthroughHandler)
	r.start(t)
}

func produceOne(msg *message.Message) []*message.Message {
	return []*message.Message{newMessage("of-" + msg.UUID)}
}

func testOutboxInTransaction(t *testing.T, f *fixture) {
	failing := true
	c := f.producer(t, deferred.OutboxConfig{}, produceOne, func() error {
		if failing {
			return errWanted
		}
		return nil
	})
	wantNack(t, c.deliver(newMessage("m1")))
	f.wantOutgoing(t, 0, rows{})
	failing = false
	wantAck(t, c.deliver(newMessage("m1")))
	f.wantOutgoing(t, 1, rows{biz: 1, inbox: 1})
	wantAck(t, c.deliver(newMessage("m1"))) // a duplicate produces nothing
	f.wantOutgoing(t, 1, rows{biz: 1, inbox: 1})
}

// testOutboxOfDeferred: claim, effect and outgoing message end in one transaction, and a claim that is lost takes the message along.
func testOutboxOfDeferred(t *testing.T, f *fixture) {
	outbox := deferred.Outbox(f.outboxConfig(t, deferred.OutboxConfig{}))
	n := f.newStalling(t, nodeOptions{inbox: inbox.Config{Outbox: outbox}})
	handler := n.box.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		if _, err := f.writes(msg); err != nil {
			return nil, err
		}
		return nil, publish(msg.Context(), n.box, "of-"+msg.UUID)
	})
	msg := n.stall(t)
	token := f.text(t, "SELECT token FROM inbox_pending")
	f.exec(t, "UPDATE inbox_pending SET token = 7")
	n.comeBack()
	_, err := handler(msg)
	wantIs(t, err, inbox.ErrClaimLost)
	f.wantOutgoing(t, 0, rows{})
	f.exec(t, "UPDATE inbox_pending SET token = "+token)
	if _, err := handler(msg); err != nil {
		t.Fatal(err)
	}
	msg.Ack()
	f.wantOutgoing(t, 1, rows{biz: 1, inbox: 1})
	if got := f.pending(t); got != 0 {
		t.Fatalf("%d rows pending, want 0", got)
	}
}

// testRelay: byte for byte, to a broker, and then they are gone; two messages may have the same UUID.
func testRelay(t *testing.T, f *fixture) {
	first, second := newMessageWith("same", "first\x00\xff"), newMessageWith("same", "second")
	first.Metadata.Set("name", "ä\xff")
	c := f.producer(t, deferred.OutboxConfig{}, func(*message.Message) []*message.Message { return []*message.Message{first, second} }, nil)
	wantAck(t, c.deliver(newMessage("m1")))
	f.wantOutgoing(t, 2, rows{biz: 1, inbox: 1})

	broker := gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	received, err := broker.Subscribe(context.Background(), outgoing)
	if err != nil {
		t.Fatal(err)
	}
	f.relay(t, deferred.SubscriberConfig{}, broker)
	got := map[string]string{}
	for range 2 {
		msg := receive(t, received, "a relayed message")
		got[string(msg.Payload)] = msg.UUID + " " + msg.Metadata.Get("name")
		msg.Ack()
	}
	if got["first\x00\xff"] != "same ä\xff" || got["second"] != "same " {
		t.Fatalf("relayed %q", got)
	}
	f.waitForOutgoing(t, 0)
	f.want(t, rows{biz: 1, inbox: 1})
}

func testOutboxDelayAndSize(t *testing.T, f *fixture) {
	const delay = time.Hour
	config := deferred.OutboxConfig{MaxMessageSize: 50, Delay: func(msg *message.Message) time.Duration {
		if msg.UUID == "of-later" {
			return delay
		}
		return 0
	}}
	c := f.producer(t, config, func(msg *message.Message) []*message.Message {
		if msg.UUID == "big" {
			return []*message.Message{newMessageWith("of-big", strings.Repeat("x", 51))}
		}
		return produceOne(msg)
	}, nil)
	d := c.deliver(newMessage("big"))
	wantNack(t, d)
	wantIs(t, d.err, deferred.ErrTooLarge)
	f.wantOutgoing(t, 0, rows{})
	wantAck(t, c.deliver(newMessage("later")))
	wantAck(t, c.deliver(newMessage("now")))
	broker := &recorder{}
	f.relay(t, deferred.SubscriberConfig{}, broker)
	f.waitForOutgoing(t, 1)
	if got := f.number(t, "SELECT due_at - received_at FROM inbox_outgoing"); got != int(delay.Microseconds()) || broker.count() != 1 {
		t.Fatalf("it stays back for %d microseconds, want %d; %d messages were relayed", got, delay.Microseconds(), broker.count())
	}
}

// testOutboxForwarder: keys and delays are those of the messages, not those of their envelopes, and the forwarder brings each message to its topic.
func testOutboxForwarder(t *testing.T, f *fixture) {
	const topic = "all"
	config := deferred.OutboxConfig{
		ForwarderTopic: topic,
		OrderingKey:    func(msg *message.Message) string { return msg.Metadata.Get("key") },
		Delay:          func(msg *message.Message) time.Duration { return time.Duration(len(msg.UUID)) * time.Millisecond },
	}
	c := f.producer(t, config, func(msg *message.Message) []*message.Message {
		return []*message.Message{withKey("1st", "a", false), withKey("2nd", "b", false)}
	}, nil)
	wantAck(t, c.deliver(newMessage("m1")))
	store := f.operator(t, deferred.Outgoing)
	for n, m := range list(t, store) {
		if m.Topic != topic || m.OrderingKey != []string{"a", "b"}[n] || m.Due.Sub(m.Received) != 3*time.Millisecond {
			t.Fatalf("stored message: %+v", m)
		}
	}
	f.wantOutgoing(t, 2, rows{biz: 1, inbox: 1})
	broker := &recorder{}
	relay, err := forwarder.NewForwarder(f.relaySubscriber(t, deferred.SubscriberConfig{}), broker, watermill.NopLogger{}, forwarder.Config{ForwarderTopic: topic})
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- relay.Run(context.Background()) }()
	f.waitForOutgoing(t, 0)
	if err := errors.Join(relay.Close(), receive(t, stopped, "the forwarder to stop")); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for n, msg := range broker.msgs {
		got[msg.UUID] = broker.topics[n] + " " + string(msg.Payload) + " " + msg.Metadata.Get("key")
	}
	if len(broker.msgs) != 2 || got["1st"] != outgoing+` {"of":"1st"} a` || got["2nd"] != outgoing+` {"of":"2nd"} b` {
		t.Fatalf("forwarded %q", got)
	}
}
