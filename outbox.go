package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// maxOutboxBatch is how many messages one insert takes. SQLite allows 32,766 parameters a statement, the other databases 65,535,
// and watermill-sql uses three for each message. Far fewer are faster: with modernc.org/sqlite the time of a statement grows with the square of
// its parameters (25,000 messages: 7 s in batches of 10,000, 1 s in batches of 1,000).
const maxOutboxBatch = 1_000

// maxOutboxBytes is how large one insert becomes, unless one message alone is larger. MySQL and MariaDB take no statement beyond
// max_allowed_packet, 16 MiB by default in MariaDB, and end the connection.
const maxOutboxBytes = 1 << 20

// OutboxFactory makes a publisher that writes messages with tx, which is a transaction. It must not create tables: on MySQL
// that would commit the transaction. The publisher is never closed. It must be safe to call for many transactions at once.
type OutboxFactory func(tx wsql.ContextExecutor) (message.Publisher, error)

// SQLOutbox makes an outbox of watermill-sql's Publisher: a message goes into the table of its topic. A wsql.Subscriber with the matching
// schema relays it. The tables must exist before the first message: Config.AutoInitializeSchema of the Inbox does not create them, and
// config.AutoInitializeSchema is refused, because no table can be created in a message's transaction. Create them with
// wsql.Subscriber.SubscribeInitialize of the relay.
//
// Messages that watermill-sql's schemas cannot store as they are, are refused before the insert: metadata that is not UTF-8 with any schema (ErrUnstorable),
// because JSON would replace what it cannot hold; a UUID longer than 36 characters, a payload that is not JSON in a JSON column or does not fit a BLOB with
// the default schemas. In a JSON column MySQL, unlike MariaDB, keeps the value of a payload and not its text: numbers lose digits that a double does not hold.
func SQLOutbox(config wsql.PublisherConfig, logger watermill.LoggerAdapter) OutboxFactory {
	if config.SchemaAdapter != nil && sqltx.IsNil(config.SchemaAdapter) {
		return func(wsql.ContextExecutor) (message.Publisher, error) {
			return nil, fmt.Errorf("SchemaAdapter is a nil %T", config.SchemaAdapter)
		}
	}
	limits := limitsOf(config.SchemaAdapter)
	return func(tx wsql.ContextExecutor) (message.Publisher, error) {
		publisher, err := wsql.NewPublisher(tx, config, logger)
		if err != nil {
			return nil, err
		}
		return limitedPublisher{publisher, limits}, nil
	}
}

// ForwarderOutbox is SQLOutbox behind Watermill's forwarder.Publisher: all messages go, in envelopes that remember their topic, into the
// one table of the forwarder's topic, and a forwarder.Forwarder relays them to any broker. The envelopes are JSON: a message whose topic, UUID or
// metadata is not UTF-8 is refused with ErrUnstorable.
func ForwarderOutbox(config wsql.PublisherConfig, forwarderConfig forwarder.PublisherConfig, logger watermill.LoggerAdapter) OutboxFactory {
	sqlOutbox := SQLOutbox(config, logger)
	return func(tx wsql.ContextExecutor) (message.Publisher, error) {
		publisher, err := sqlOutbox(tx)
		if err != nil {
			return nil, err
		}
		return textPublisher{forwarder.NewPublisher(publisher, forwarderConfig)}, nil
	}
}

// Publisher returns a publisher that writes to the outbox in the transaction of the message being handled, which it takes from the context of
// the messages it publishes. It suits cqrs.EventBus and cqrs.CommandBus, which put the caller's context there; one bus can serve
// all handlers. Messages without an open transaction are refused with ErrNoTransaction.
//
// Close does nothing. The publisher is safe for concurrent use by different handlers; a transaction itself is not.
func (i *Inbox) Publisher() message.Publisher {
	return contextPublisher{i}
}

type contextPublisher struct{ inbox *Inbox }

func (p contextPublisher) Publish(topic string, msgs ...*message.Message) error {
	if len(msgs) == 0 {
		return nil
	}
	h := holderFromContext(msgs[0].Context())
	for _, msg := range msgs {
		if h == nil || h.inbox != p.inbox || holderFromContext(msg.Context()) != h {
			err := fmt.Errorf("inbox: publish message %s to %q: %w: publish with the context of the message being handled, all messages with the same one",
				quote(msg.UUID), topic, ErrNoTransaction)
			return p.failAll(msgs, err)
		}
	}
	if err := h.publishInTx(topic, msgs); err != nil {
		return fmt.Errorf("inbox: publish %d messages to %q: %w", len(msgs), topic, err)
	}
	return nil
}

// failAll keeps the transactions that some of the messages belong to from being committed without them.
func (p contextPublisher) failAll(msgs message.Messages, err error) error {
	for _, msg := range msgs {
		if h := holderFromContext(msg.Context()); h != nil && h.inbox == p.inbox {
			_ = h.fail(err)
		}
	}
	return err
}

func (contextPublisher) Close() error { return nil }

// publishInTx holds no lock while it publishes, because decorators may look into the message's context.
func (h *holder) publishInTx(topic string, msgs message.Messages) error {
	h.mu.Lock()
	if h.tx == nil {
		h.mu.Unlock()
		return fmt.Errorf("%w: the handler has returned", ErrNoTransaction)
	}
	h.publishing.Add(1)
	h.mu.Unlock()

	// On some engines the transaction goes on after a failed insert. Without this, a handler that ignores the error, or recovers from
	// a panic, would commit its effect without the message.
	defer h.publishing.Done()
	return h.failUnless("publishing", func() error { return h.publish(topic, msgs) })
}

// outbox publishes the messages of one transaction.
type outbox struct {
	config   *Config
	tx       wsql.Tx
	incoming *message.Message

	mu        sync.Mutex // only while the publisher is made
	publisher message.Publisher
}

// publish writes messages to the outbox. Their contexts must already be those to use for the insert.
func (o *outbox) publish(topic string, msgs message.Messages) error {
	if o.config.Outbox == nil {
		return ErrNoOutbox
	}
	publisher, err := o.get()
	if err != nil {
		return err
	}

	correlationID := middleware.MessageCorrelationID(o.incoming)
	for _, msg := range msgs {
		if correlationID != "" {
			if msg.Metadata == nil {
				msg.Metadata = message.Metadata{}
			}
			middleware.SetCorrelationID(correlationID, msg)
		}
	}
	for len(msgs) > 0 {
		n := nextBatch(msgs)
		if err := publisher.Publish(topic, msgs[:n]...); err != nil {
			return err
		}
		msgs = msgs[n:]
	}
	return nil
}

// nextBatch returns how many of the messages the next insert takes, at least one.
func nextBatch(msgs message.Messages) (n int) {
	for size := 0; n < min(len(msgs), maxOutboxBatch); n++ {
		if size += sizeOf(msgs[n]); n > 0 && size > maxOutboxBytes {
			break
		}
	}
	return n
}

// sizeOf is how many bytes of a message go into the outbox.
func sizeOf(msg *message.Message) int {
	size := len(msg.UUID) + len(msg.Payload)
	for key, value := range msg.Metadata {
		size += len(key) + len(value)
	}
	return size
}

// get returns the publisher of the transaction.
func (o *outbox) get() (message.Publisher, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.publisher == nil {
		publisher, err := o.config.newOutboxPublisher(o.tx)
		if err != nil {
			return nil, err
		}
		o.publisher = publisher
	}
	return o.publisher, nil
}

func (c *Config) newOutboxPublisher(tx wsql.ContextExecutor) (message.Publisher, error) {
	publisher, err := c.Outbox(tx)
	if err != nil {
		return nil, err
	}
	if sqltx.IsNil(publisher) {
		return nil, errors.New("the factory returned no publisher")
	}
	for n, decorate := range c.OutboxDecorators {
		if publisher, err = decorate(publisher); err != nil {
			return nil, fmt.Errorf("OutboxDecorators[%d]: %w", n, err)
		}
		if sqltx.IsNil(publisher) {
			return nil, fmt.Errorf("OutboxDecorators[%d] returned no publisher", n)
		}
	}
	return publisher, nil
}

// probeOutbox makes a publisher once, to find at start a factory that would create tables in a message's transaction.
func (i *Inbox) probeOutbox() error {
	if i.config.Outbox == nil {
		return nil
	}
	_, err := i.config.newOutboxPublisher(refusingTx{})
	return err
}

// refusingTx looks like a transaction and runs nothing.
type refusingTx struct{}

var errProbe = errors.New("a factory may run no statement before the first message is published: create the tables before")

func (refusingTx) ExecContext(context.Context, string, ...any) (wsql.Result, error) {
	return nil, errProbe
}

func (refusingTx) QueryContext(context.Context, string, ...any) (wsql.Rows, error) {
	return nil, errProbe
}
func (refusingTx) Commit() error   { return errProbe }
func (refusingTx) Rollback() error { return errProbe }
