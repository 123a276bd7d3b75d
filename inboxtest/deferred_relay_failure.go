package inboxtest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/deferred"
)

var relayFailureCases = []testCase{
	{name: "D5_OutboxBacksOff", run: testRelayBacksOff},
	{name: "D5_OutboxDeadWhenRefused", run: testRelayDead},
	{name: "D5_OutboxOrder", run: testRelayOrder},
}

// failingBroker refuses messages as a test says.
type failingBroker struct {
	recorder
	refuse func(msg *message.Message) bool
}

// Publish records what the broker takes.
func (b *failingBroker) Publish(topic string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		if b.refuse(msg) {
			return errWanted
		}
		if err := b.recorder.Publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
}

// produceMany makes so many messages, each with the key of its remainder.
func produceMany(n, keys int) func(*message.Message) []*message.Message {
	return func(*message.Message) []*message.Message {
		var msgs []*message.Message
		for i := range n {
			msgs = append(msgs, withKey(fmt.Sprintf("%02d", i), fmt.Sprint(i%keys), false))
		}
		return msgs
	}
}

// testRelayBacksOff: the waits are random up to their bound, so the test looks at many.
func testRelayBacksOff(t *testing.T, f *fixture) {
	const total = 20
	var up atomic.Bool
	var refusals atomic.Int64
	broker := &failingBroker{refuse: func(*message.Message) bool {
		if !up.Load() {
			refusals.Add(1)
		}
		return !up.Load()
	}}
	c := f.producer(t, deferred.OutboxConfig{}, produceMany(total, 1), nil)
	wantAck(t, c.deliver(newMessage("m1")))
	f.relay(t, deferred.SubscriberConfig{InitialBackoff: time.Hour}, broker)
	eventually(t, "each message to be refused", func() bool {
		return f.number(t, "SELECT COUNT(*) FROM inbox_outgoing WHERE attempts > 0 AND state = 0") == total
	})
	// One of 60 waits is shorter than a minute.
	if got := f.number(t, "SELECT COUNT(*) FROM inbox_outgoing WHERE due_at > received_at + 60000000"); got < total/2 || refusals.Load() > total*3/2 {
		t.Fatalf("%d of %d messages stay back after %d refusals", got, total, refusals.Load())
	}
	if got := broker.count(); got != 0 {
		t.Fatalf("the broker took %d messages", got)
	}
	up.Store(true)
	f.exec(t, "UPDATE inbox_outgoing SET due_at = 0 WHERE state = 0")
	f.waitForOutgoing(t, 0)
	if got := broker.count(); got != total {
		t.Fatalf("the broker got %d messages, want %d", got, total)
	}
}

// testRelayDead: the broker refuses one message for good, and the other ones pass. The Router publishes after the middlewares have returned, so
// the relay publishes in its handler, where RecordError sees the error.
func testRelayDead(t *testing.T, f *fixture) {
	var refusals atomic.Int64
	broker := &failingBroker{refuse: func(msg *message.Message) bool {
		if msg.UUID == "01" {
			refusals.Add(1)
			return true
		}
		return false
	}}
	c := f.producer(t, deferred.OutboxConfig{}, produceMany(3, 1), nil)
	wantAck(t, c.deliver(newMessage("m1")))
	r := newRouter(t, message.RouterConfig{CloseTimeout: patience})
	h := r.AddConsumerHandler("relay", outgoing, f.relaySubscriber(t, deferred.SubscriberConfig{MaxAttempts: 3}), func(msg *message.Message) error {
		return broker.Publish(outgoing, msg)
	})
	h.AddMiddleware(deferred.RecordError)
	r.start(t)
	store := f.operator(t, deferred.Outgoing)
	f.waitForOutgoing(t, 1)
	eventually(t, "the refused message to be dead", func() bool { return len(list(t, store, deferred.StateDead)) == 1 })
	dead := list(t, store)[0]
	if dead.UUID != "01" || dead.Attempts != 3 || dead.Reason != "attempts exhausted" || dead.LastError != errWanted.Error() || refusals.Load() != 3 {
		t.Fatalf("dead message: %+v after %d refusals", dead, refusals.Load())
	}
	if got := broker.count(); got != 2 {
		t.Fatalf("the broker got %d messages, want 2", got)
	}
	f.want(t, rows{biz: 1, inbox: 1})
}

// testRelayOrder: two relays, and every third message is refused at first.
func testRelayOrder(t *testing.T, f *fixture) {
	const total, keys = 24, 2
	var failed [total]atomic.Bool
	broker := &failingBroker{refuse: func(msg *message.Message) bool {
		var n int
		_, err := fmt.Sscanf(msg.UUID, "%02d", &n)
		return err != nil || n%3 == 0 && !failed[n].Swap(true)
	}}
	c := f.producer(t, deferred.OutboxConfig{OrderingKey: func(msg *message.Message) string { return msg.Metadata.Get("key") }}, produceMany(total, keys), nil)
	wantAck(t, c.deliver(newMessage("m1")))
	for range 2 {
		f.relay(t, deferred.SubscriberConfig{}, broker)
	}
	f.waitForOutgoing(t, 0)
	last := map[string]string{}
	for _, msg := range broker.msgs {
		key := msg.Metadata.Get("key")
		if msg.UUID <= last[key] {
			t.Fatalf("key %s: %s came after %s", key, msg.UUID, last[key])
		}
		last[key] = msg.UUID
	}
	if got := broker.count(); got != total {
		t.Fatalf("the broker got %d messages, want %d", got, total)
	}
}
