package deferred

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// DefaultRelay is the Consumer of the Subscriber that relays an Outbox.
const DefaultRelay = "relay"

// OutboxConfig configures an Outbox. Schema is required.
type OutboxConfig struct {
	// Schema is the SQL dialect: postgres.Schema{}, mysql.Schema{} or sqlite.Schema{}. Required.
	Schema inbox.Schema

	// Relay is the Consumer of the Subscriber that relays the messages. Default: DefaultRelay.
	Relay string

	// ForwarderTopic, if set, puts all messages, in envelopes that remember their topics, under this one topic, from which a
	// forwarder.Forwarder relays them. Default: each message is under its own topic.
	ForwarderTopic string

	// OrderingKey returns the key whose messages are relayed one at a time in the order of their publication; empty: none.
	// Publications of transactions that overlap in time have no order between them. Like Delay it is given the message, not its envelope for
	// a forwarder. Default: no message has a key.
	OrderingKey func(msg *message.Message) string

	// Delay returns how long a message stays back after its publication. Default: not at all.
	Delay func(msg *message.Message) time.Duration

	// MaxMessageSize is the largest payload plus metadata in bytes that is accepted. Default: 4 MiB.
	MaxMessageSize int
}

// Validate returns all mistakes in the configuration, each naming its field.
func (c OutboxConfig) Validate() error {
	_, err := dialectOf(c.Schema)
	errs := []error{err}
	if len(c.Relay) > inbox.MaxConsumerLength {
		errs = append(errs, mistake("Relay has %d bytes, at most %d are possible", len(c.Relay), inbox.MaxConsumerLength))
	}
	if len(c.ForwarderTopic) > MaxTopicLength {
		errs = append(errs, mistake("ForwarderTopic has %d bytes, at most %d are possible", len(c.ForwarderTopic), MaxTopicLength))
	}
	if c.MaxMessageSize < 0 {
		errs = append(errs, mistake("MaxMessageSize is negative: %d", c.MaxMessageSize))
	}
	return errors.Join(errs...)
}

// Outbox makes an inbox.OutboxFactory that writes the messages a handler produces into the table of outgoing messages, in the transaction of the
// effect. A Subscriber with Queue Outgoing and Consumer Relay hands them to a Router, which publishes them to any broker; a message is deleted when
// the broker has taken it, is tried again with backoff while the broker is down, and is dead when it is refused too often. The relay delivers at
// least once.
//
// Unlike with the schemas of watermill-sql, a transaction elsewhere in the server holds up nothing, the relay blocks no producer while it waits for the
// broker, and a broker that is slow loses nothing of a batch; but an outbox in watermill-sql's tables can be read by any of its subscribers.
//
// Mistakes in config are returned by inbox.New. The table must exist before the first message.
func Outbox(config OutboxConfig) inbox.OutboxFactory {
	if config.Relay == "" {
		config.Relay = DefaultRelay
	}
	if config.OrderingKey == nil {
		config.OrderingKey = func(*message.Message) string { return "" }
	}
	if config.Delay == nil {
		config.Delay = func(*message.Message) time.Duration { return 0 }
	}
	if config.MaxMessageSize == 0 {
		config.MaxMessageSize = 4 << 20
	}
	return func(tx wsql.ContextExecutor) (message.Publisher, error) {
		if err := config.Validate(); err != nil {
			return nil, fmt.Errorf("deferred: invalid OutboxConfig: %w", err)
		}
		dialect, err := dialectOf(config.Schema)
		if err != nil {
			return nil, err
		}
		return &outboxPublisher{config, statements{dialect, Outgoing}, tx}, nil
	}
}

// outboxPublisher writes with one transaction.
type outboxPublisher struct {
	config     OutboxConfig
	statements statements
	tx         wsql.ContextExecutor
}

// Publish writes messages with the context of the first. All of them are written or an error is returned.
func (p *outboxPublisher) Publish(topic string, messages ...*message.Message) error {
	written, under, err := p.envelopes(topic, messages)
	if err != nil {
		return fmt.Errorf("deferred: outbox: topic %.300q: %w", topic, err)
	}
	items := make([]*item, len(messages))
	for n, msg := range messages {
		row := inbox.Row{Consumer: p.config.Relay, ID: written[n].UUID}
		// An envelope hides from the functions what they look at.
		stored, err := describeMessage(written[n], row, under, p.config.OrderingKey(msg), p.config.Delay(msg), p.config.MaxMessageSize)
		if err != nil {
			return fmt.Errorf("deferred: outbox: topic %.300q: %w", topic, err)
		}
		items[n] = &item{storedMessage: stored}
	}
	for _, chunk := range chunks(items) {
		if err := p.write(messages[0].Context(), chunk); err != nil {
			return fmt.Errorf("deferred: outbox: topic %.300q: %w", topic, err)
		}
	}
	return nil
}

// envelopes returns what is written, and under which topic: the messages themselves unless a forwarder relays them.
func (p *outboxPublisher) envelopes(topic string, messages []*message.Message) ([]*message.Message, string, error) {
	if p.config.ForwarderTopic == "" {
		return messages, topic, nil
	}
	var c collector
	err := forwarder.NewPublisher(&c, forwarder.PublisherConfig{ForwarderTopic: p.config.ForwarderTopic}).Publish(topic, messages...)
	return c.messages, p.config.ForwarderTopic, err
}

// collector is a Publisher that keeps what it is given.
type collector struct{ messages []*message.Message }

func (c *collector) Publish(_ string, messages ...*message.Message) error {
	c.messages = append(c.messages, messages...)
	return nil
}

func (c *collector) Close() error { return nil }

func (p *outboxPublisher) write(ctx context.Context, chunk []*item) error {
	stored := make([]storedMessage, len(chunk))
	for n, it := range chunk {
		stored[n] = it.storedMessage
	}
	query := p.statements.insert(stored, newToken())
	_, err := p.tx.ExecContext(ctx, query.Query, query.Args...)
	return err
}

// Close does nothing.
func (p *outboxPublisher) Close() error { return nil }

// InitializeOutbox creates the table of outgoing messages if it is missing, and verifies it. It is what the relay's Subscriber does with
// AutoInitializeSchema.
func InitializeOutbox(ctx context.Context, db wsql.Beginner, schema inbox.Schema) error {
	queue, err := newTable(db, schema, Outgoing, defaultTimeout, watermill.NopLogger{})
	if err != nil {
		return fmt.Errorf("deferred: initialize outbox: %w", err)
	}
	return queue.initialize(ctx)
}
