package inboxtest

import (
	"sync"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

// recorder is a Publisher that keeps what it is given and then fails, if it should, or passes it on.
type recorder struct {
	next message.Publisher // nil: nowhere
	err  error

	mu     sync.Mutex
	topics []string
	msgs   []*message.Message
}

func (r *recorder) Publish(topic string, msgs ...*message.Message) error {
	r.mu.Lock()
	for _, msg := range msgs {
		r.topics, r.msgs = append(r.topics, topic), append(r.msgs, msg)
	}
	r.mu.Unlock()
	if r.err != nil || r.next == nil {
		return r.err
	}
	return r.next.Publish(topic, msgs...)
}

func (r *recorder) Close() error { return nil }

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.msgs)
}

// failingOutbox is an outbox whose insert fails.
func failingOutbox(wsql.ContextExecutor) (message.Publisher, error) {
	return &recorder{err: errWanted}, nil
}
