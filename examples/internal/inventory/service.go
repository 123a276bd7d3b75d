package inventory

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
)

// Consumer is the scope of the inbox: the logical consumer, the same for all instances and all workers of the inventory service.
const Consumer = "inventory"

// workers is how many orders one instance handles at a time. watermill-amqp hands out one message per subscription, whatever its prefetch
// count, so each worker is a handler of its own on the same queue. That is what inbox.Config.ShareConsumer is for.
const workers = 4

// Service is the inventory service.
type Service struct {
	System  string // stands before the names of the topics
	Inbox   *inbox.Inbox
	Handler message.HandlerFunc
	Outbox  message.Subscriber // reads the table of the outbox
}

// newRouter makes the consumer of orders.
func (s Service) newRouter(orders message.Subscriber, broker message.Publisher, logger watermill.LoggerAdapter) (*message.Router, error) {
	// Longer than the inbox's TxTimeout, so that Close waits for the handlers.
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, logger)
	if err != nil {
		return nil, err
	}
	middlewares, err := Middlewares(s.Inbox, broker, s.topics().poison, logger)
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(middlewares...)
	for worker := range workers {
		router.AddHandler(
			fmt.Sprintf("inventory-%d", worker),
			s.topics().orders, orders,
			s.topics().reserved, s.Inbox.Publisher(), // into the outbox
			s.Handler,
		)
	}
	return router, nil
}

// Middlewares are those of a consumer with an inbox, outermost first. Poisoned messages go to poisonTopic.
func Middlewares(in *inbox.Inbox, poisonTo message.Publisher, poisonTopic string, logger watermill.LoggerAdapter) ([]message.HandlerMiddleware, error) {
	// Only messages that are at fault themselves are moved away. A lost connection or a conflict is nacked and comes again.
	poison, err := middleware.PoisonQueueWithFilter(poisonTo, poisonTopic, inbox.IsPoison)
	if err != nil {
		return nil, err
	}
	// Brokers deliver a nacked message again at once or soon, so this is also what keeps an outage from becoming a storm.
	retry := middleware.Retry{
		MaxRetries:          3,
		InitialInterval:     100 * time.Millisecond,
		Multiplier:          3,
		ShouldRetry:         func(params middleware.RetryParams) bool { return inbox.IsRetryable(params.Err) },
		ResetContextOnRetry: true,
		Logger:              logger,
	}

	// The order matters: each retry needs a transaction of its own, and nothing is poison before the retries ended.
	return []message.HandlerMiddleware{
		middleware.Recoverer,
		poison,
		retry.Middleware,
		middleware.Recoverer, // makes a handler's panic an error for the two above; the broker would deliver it again and again
		in.Middleware,
	}, nil
}

// newRelay carries the events of the outbox to the broker. It may repeat one after a crash, never leave one out: those who listen
// to its events have an inbox, too. It can run anywhere; one is enough, a second one waits for the first.
func (s Service) newRelay(broker message.Publisher, logger watermill.LoggerAdapter) (*forwarder.Forwarder, error) {
	return forwarder.NewForwarder(s.Outbox, broker, logger, forwarder.Config{ForwarderTopic: OutboxTopic})
}
