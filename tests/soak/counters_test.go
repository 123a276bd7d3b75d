package soak

import (
	"encoding/json"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// counters are what a consumer has counted since it started. It prints them with every delivery.
type counters struct {
	Deliveries  int `json:"deliveries"`
	Redelivered int `json:"redelivered"` // RabbitMQ says so
	Acks        int `json:"acks"`        // about to be sent
	Nacks       int `json:"nacks"`

	Processed  int `json:"processed"`
	Duplicates int `json:"duplicates"`
	Conflicts  int `json:"conflicts"` // transactions that the database gave up
	Uncertain  int `json:"uncertain"` // COMMITs without a clear answer
	Resolved   int `json:"resolved"`  // of these, by the same delivery

	Unproven int    `json:"unproven"`       // acks too early, or without one effect in the database
	Example  string `json:"text,omitempty"` // of an unproven ack
}

func (c *counters) add(other counters) {
	for _, pair := range []struct{ sum, value *int }{
		{&c.Deliveries, &other.Deliveries}, {&c.Redelivered, &other.Redelivered}, {&c.Acks, &other.Acks}, {&c.Nacks, &other.Nacks},
		{&c.Processed, &other.Processed}, {&c.Duplicates, &other.Duplicates}, {&c.Conflicts, &other.Conflicts},
		{&c.Uncertain, &other.Uncertain}, {&c.Resolved, &other.Resolved}, {&c.Unproven, &other.Unproven},
	} {
		*pair.sum += *pair.value
	}
	if other.Example != "" {
		c.Example = other.Example
	}
}

// reporter counts what happens to deliveries. It is an inbox.Observer and a middleware.
type reporter struct {
	mu     sync.Mutex
	counts counters
	lines  *json.Encoder
}

func (r *reporter) ObserveDelivery(report inbox.DeliveryReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch report.Outcome {
	case inbox.Processed:
		r.counts.Processed++
	case inbox.Duplicate:
		r.counts.Duplicates++
	}
	r.counts.Conflicts += report.Conflicts
	r.counts.Uncertain += report.UncertainCommits
	r.counts.Resolved += report.UncertainCommits
	if errors.Is(report.Err, inbox.ErrCommitUncertain) {
		r.counts.Resolved-- // the last one is not; those before it were
	}
}

// delivery is the outermost middleware. When it returns, the line is in the pipe, so the test knows of it whatever happens to the ack.
func (r *reporter) delivery(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.counts.Deliveries++
		if amqp.IsMessageRedelivered(msg) {
			r.counts.Redelivered++
		}
		if err == nil {
			r.counts.Acks++
		} else {
			r.counts.Nacks++
		}
		_ = r.lines.Encode(r.counts)
		return produced, err
	}
}

func (r *reporter) unproven(example string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Unproven++
	r.counts.Example = example
}
