package inboxtest

import (
	"context"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// router is a real Router, fed by a broker that shows what became of each message.
type router struct {
	*message.Router
	broker *broker
}

// newRouter makes a Router. Add handlers with its broker as their subscriber, then start it.
func newRouter(t *testing.T, config message.RouterConfig) *router {
	t.Helper()
	r, err := message.NewRouter(config, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	return &router{Router: r, broker: &broker{topics: map[string]chan *message.Message{}}}
}

// start runs the Router until the end of the test.
func (r *router) start(t *testing.T) {
	t.Helper()
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(context.Background()) }()
	receive(t, r.Running(), "the Router to run")
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close the Router: %v", err)
		}
		if err := receive(t, stopped, "the Router to stop"); err != nil {
			t.Errorf("run the Router: %v", err)
		}
	})
}

// deliver sends msg to the handler of a topic and waits for its ack or nack.
func (r *router) deliver(t *testing.T, topic string, msg *message.Message) delivery {
	t.Helper()
	r.broker.send(topic, msg)
	eventually(t, "an ack or a nack from the Router", func() bool { return closed(msg.Acked()) || closed(msg.Nacked()) })
	return delivery{acked: closed(msg.Acked()), nacked: closed(msg.Nacked())}
}

// broker is a Subscriber that delivers what it is told to, once: it repeats nothing, so that a test sees each nack.
type broker struct {
	mu     sync.Mutex
	topics map[string]chan *message.Message
	closed bool
}

func (b *broker) topic(name string) chan *message.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.topics[name] == nil {
		b.topics[name] = make(chan *message.Message, 1024)
	}
	return b.topics[name]
}

func (b *broker) send(topic string, msg *message.Message) { b.topic(topic) <- msg }

// Subscribe is for the Router, which ends a subscription either by Close or, if it happens to see that first, by its context alone.
func (b *broker) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	context.AfterFunc(ctx, func() { _ = b.Close() })
	return b.topic(topic), nil
}

// Close is for the Router, which calls it once for every handler.
func (b *broker) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	for _, topic := range b.topics {
		close(topic)
	}
	return nil
}
