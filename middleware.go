package inbox

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Middleware protects the handler h: its writes through the transaction in the message's context, the messages it produces and the
// message's identity are committed together, or none of them is. It returns no error only when the identity is committed, so the
// Router acks then and not before. The messages that h produces go to the outbox and are not returned.
//
// The Router's publisher is therefore never used. Router.AddHandler wants one nevertheless: give it Publisher, which refuses messages outside a
// transaction and which the Router cannot close, not the broker's. (Only with Config.Skip it must be the broker's, if skipped messages
// produce others.)
//
// Recommended order of middlewares, outermost first: PoisonQueueWithFilter with IsPoison, Retry with IsRetryable and ResetContextOnRetry, Throttle,
// Recoverer, this one, Timeout, CorrelationID. Recoverer makes an error of a panic after the rollback; further out, Retry and the poison queue
// would not see the panic, and the message would come again without end.
func (i *Inbox) Middleware(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if i.skips(msg) {
			defer hideTransaction(msg)()
			return h(msg)
		}
		_, err := i.deliver(msg, h)
		return nil, err
	}
}

// Process runs fn under the same protection as Middleware, for messages that do not come through a Router. The context of fn carries the
// transaction; messages are published through Publisher. The caller acks the message if the error is nil and nacks it otherwise.
//
// Without a Router there is no handler's name, so Config.Consumer must be set.
func (i *Inbox) Process(msg *message.Message, fn func(ctx context.Context) error) (Outcome, error) {
	handler := func(msg *message.Message) ([]*message.Message, error) {
		return nil, fn(msg.Context())
	}
	if i.skips(msg) {
		defer hideTransaction(msg)()
		if _, err := handler(msg); err != nil {
			return 0, err
		}
		return Skipped, nil
	}
	return i.deliver(msg, handler)
}

func (i *Inbox) skips(msg *message.Message) bool {
	return i.config.Skip != nil && i.config.Skip(msg)
}

// hideTransaction keeps a handler without a transaction from finding one that the message's context leaked from its publisher, as GoChannel with
// PreserveContext does. The returned function ends it.
func hideTransaction(msg *message.Message) (restore func()) {
	entry := msg.Context()
	if holderFromContext(entry) == nil {
		return func() {}
	}
	hidden := context.WithValue(entry, contextKey{}, (*holder)(nil))
	msg.SetContext(hidden)
	return func() {
		if msg.Context() == hidden {
			msg.SetContext(entry)
		}
	}
}
