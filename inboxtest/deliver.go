package inboxtest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// newMessage makes a message with a payload of its own.
func newMessage(id string) *message.Message {
	return newMessageWith(id, fmt.Sprintf(`{"of":%q}`, id))
}

func newMessageWith(id, payload string) *message.Message {
	return message.NewMessage(id, []byte(payload))
}

// delivery is what became of one delivery.
type delivery struct {
	acked  bool
	nacked bool
	err    error
	panic  any
	exited bool // runtime.Goexit
}

func (d delivery) String() string {
	return fmt.Sprintf("acked %t, nacked %t, error %v, panic %v, exited %t", d.acked, d.nacked, d.err, d.panic, d.exited)
}

// deliver hands msg to a handler as the Router does: an ack for nil, a nack for an error or a panic, and nothing after a Goexit.
func deliver(handler message.HandlerFunc, msg *message.Message) delivery {
	var d delivery
	done := make(chan struct{})
	go func() {
		defer close(done)
		returned := false
		defer func() {
			if d.panic = recover(); d.panic != nil {
				msg.Nack()
			} else if !returned {
				d.exited = true
			}
		}()
		if _, d.err = handler(msg); d.err != nil {
			msg.Nack()
		} else {
			msg.Ack()
		}
		returned = true
	}()
	<-done
	d.acked, d.nacked = closed(msg.Acked()), closed(msg.Nacked())
	return d
}

func closed(signal <-chan struct{}) bool {
	select {
	case <-signal:
		return true
	default:
		return false
	}
}

// consumer is a handler behind an inbox, as one instance of a service has it.
type consumer struct {
	inbox   *inbox.Inbox
	handler message.HandlerFunc // with the inbox around it
	calls   atomic.Int64        // of the handler
}

// consumer makes a consumer with a pool of its own of four connections.
func (f *fixture) consumer(t *testing.T, config inbox.Config, handler message.HandlerFunc) *consumer {
	t.Helper()
	return f.consumerOn(t, f.pool(t, 4), config, handler)
}

func (f *fixture) consumerOn(t *testing.T, pool Pool, config inbox.Config, handler message.HandlerFunc) *consumer {
	t.Helper()
	c := &consumer{inbox: f.newInbox(t, pool, config)}
	c.handler = c.inbox.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		c.calls.Add(1)
		return handler(msg)
	})
	return c
}

func (c *consumer) deliver(msg *message.Message) delivery { return deliver(c.handler, msg) }

// deliverAll delivers all messages at once and returns what became of each, in their order.
func (c *consumer) deliverAll(msgs ...*message.Message) []delivery {
	deliveries := make([]delivery, len(msgs))
	done := make(chan struct{})
	for n, msg := range msgs {
		go func() {
			deliveries[n] = c.deliver(msg)
			done <- struct{}{}
		}()
	}
	for range msgs {
		<-done
	}
	return deliveries
}

// copies are n deliveries of one message.
func copies(n int, id string) []*message.Message {
	msgs := make([]*message.Message, n)
	for i := range msgs {
		msgs[i] = newMessage(id)
	}
	return msgs
}

// wantAck, wantNack and wantCalls stop the test unless it went as they say.

func wantAck(t *testing.T, d delivery) {
	t.Helper()
	if !d.acked || d.err != nil {
		t.Fatalf("delivery: want an ack; got %v", d)
	}
}

func wantNack(t *testing.T, d delivery) {
	t.Helper()
	if !d.nacked || d.acked {
		t.Fatalf("delivery: want a nack; got %v", d)
	}
}

func (c *consumer) wantCalls(t *testing.T, want int64) {
	t.Helper()
	if got := c.calls.Load(); got != want {
		t.Fatalf("the handler ran %d times, want %d", got, want)
	}
}

// receive waits for a signal with patience.
func receive[T any](t *testing.T, signal <-chan T, what string) T {
	t.Helper()
	select {
	case value := <-signal:
		return value
	case <-time.After(patience):
		t.Fatalf("waited %s for: %s", patience, what)
		panic("unreachable")
	}
}

// eventually polls a state that nothing signals, such as that of a server.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %s for: %s", patience, what)
		}
	}
}
