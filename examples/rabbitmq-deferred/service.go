package main

import (
	"fmt"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/examples/internal/demo"
	"github.com/watermill-inbox/inbox/postgres"
)

// schema names the tables of this example. postgres.Schema{} is what you need.
var schema = postgres.Schema{
	MessagesTable: "example_deferred_inbox",
	PendingTable:  "example_deferred_pending",
	OutgoingTable: "example_deferred_outgoing",
}

const (
	consumer    = "inventory" // the same for Receiver, Subscriber and Inbox
	outboxTopic = "outbox"

	// receivers is how many orders are taken from RabbitMQ at a time: watermill-amqp hands out one message per subscription.
	receivers = 2
	// inFlight is how many orders are processed at a time, with one handler.
	inFlight = 4

	// connections: one for each reception and each message in flight; for each of the two Subscribers one for its leases, one for the claims
	// of its topic; one for the relay to remove what is sent.
	connections = receivers + inFlight + 2*2 + 1
)

type topics struct{ orders, reserved, poison string }

func topicsOf(system string) topics {
	return topics{orders: system + ".orders", reserved: system + ".stock-reserved", poison: system + ".orders-poison"}
}

// service has three parts. They share a database and nothing else, so they may be three processes.
type service struct {
	pool   wsql.Beginner
	topics topics

	// So that in one process nobody waits for the next poll.
	received, produced *deferred.Wakeup
}

// newReception takes orders over from RabbitMQ: the Router acks when the Receiver has committed them.
func (s service) newReception(orders message.Subscriber, broker message.Publisher, watch message.HandlerMiddleware) (*message.Router, error) {
	receiver, err := deferred.NewReceiver(s.pool, deferred.ReceiverConfig{
		Schema:               schema,
		Consumer:             consumer,
		Wakeup:               s.received,
		AutoInitializeSchema: true, // those of received and of processed messages
	}, demo.Logger())
	if err != nil {
		return nil, err
	}
	router, err := newRouter()
	if err != nil {
		return nil, err
	}
	for n := range receivers {
		handler := router.AddHandler(
			fmt.Sprintf("receive-orders-%d", n),
			s.topics.orders, orders,
			s.topics.orders, refuser{receiver, broker, s.topics.poison},
			message.PassthroughHandler,
		)
		handler.AddMiddleware(watch)
	}
	return router, nil
}

// refuser is a Receiver that moves messages away which it can never store: those without an id, too large, or with the id of another. The Router
// publishes after all middlewares, so a poison queue among them would not see the Receiver's error, and RabbitMQ would deliver again at once, forever.
type refuser struct {
	*deferred.Receiver
	poison message.Publisher
	topic  string
}

func (r refuser) Publish(topic string, messages ...*message.Message) error {
	err := r.Receiver.Publish(topic, messages...) // one, from PassthroughHandler
	if !inbox.IsPoison(err) {
		return err
	}
	for _, msg := range messages {
		msg.Metadata.Set(middleware.ReasonForPoisonedKey, err.Error())
	}
	return r.poison.Publish(r.topic, messages...)
}

// newProcessing does the business. The inbox is a middleware of the processing handler; one of the router would stand around receptions, too, and refuse them.
func (s service) newProcessing(handle message.HandlerFunc) (*message.Router, error) {
	orders, err := deferred.NewSubscriber(s.pool, deferred.SubscriberConfig{
		Schema:      schema,
		Consumer:    consumer,
		MaxInFlight: inFlight,
		Wakeup:      s.received,
	}, demo.Logger())
	if err != nil {
		return nil, err
	}
	stock, err := inbox.New(s.pool, inbox.Config{
		Schema:   schema,
		Consumer: consumer,
		Outbox:   deferred.Outbox(deferred.OutboxConfig{Schema: schema, ForwarderTopic: outboxTopic}),
		Observer: s.produced,
	}, demo.Logger())
	if err != nil {
		return nil, err
	}
	router, err := newRouter()
	if err != nil {
		return nil, err
	}
	// No Retry and no poison queue: the queue tries again with a backoff, and a message that always fails is dead in it.
	handler := router.AddHandler("reserve-stock", s.topics.orders, orders, s.topics.reserved, stock.Publisher(), handle)
	handler.AddMiddleware(middleware.Recoverer, stock.Middleware)
	return router, nil
}

// newRelay carries the events of the outbox to RabbitMQ. It may repeat one after a crash, never leave one out. Any number of them may run.
func (s service) newRelay(broker message.Publisher) (*forwarder.Forwarder, error) {
	outgoing, err := deferred.NewSubscriber(s.pool, deferred.SubscriberConfig{
		Schema:      schema,
		Consumer:    deferred.DefaultRelay,
		Queue:       deferred.Outgoing,
		MaxAttempts: -1,          // no outage of RabbitMQ makes an event dead,
		MaxBackoff:  time.Minute, // and at its end none waits longer than this
		Wakeup:      s.produced,
	}, demo.Logger())
	if err != nil {
		return nil, err
	}
	return forwarder.NewForwarder(outgoing, broker, demo.Logger(), forwarder.Config{
		ForwarderTopic: outboxTopic,
		Middlewares:    []message.HandlerMiddleware{deferred.RecordError}, // so that operators see why RabbitMQ refused an event
	})
}

// newRouter waits longer for handlers than the Subscriber's CloseTimeout (20 s) and the inbox's TxTimeout (25 s).
func newRouter() (*message.Router, error) {
	return message.NewRouter(message.RouterConfig{CloseTimeout: 30 * time.Second}, demo.Logger())
}
