// Package inventory is what the two RabbitMQ examples have in common: the events, the broker, the Router with its middlewares, the relay,
// and the small story that they play. What depends on the database is in their main.go. The examples sql-broker and rabbitmq-deferred share events, broker and middlewares.
package inventory

import (
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// OutboxTopic names the table in which events wait for the relay.
const OutboxTopic = "outbox"

// topics of one system, so that the two examples can share a RabbitMQ.
type topics struct{ orders, reserved, poison string }

func (s Service) topics() topics {
	return topics{orders: s.System + ".orders", reserved: s.System + ".stock-reserved", poison: s.System + ".orders-poison"}
}

// Order is the event that the order service publishes.
type Order struct {
	ID       string `json:"order_id"`
	Article  string `json:"article"`
	Quantity int    `json:"quantity"`
}

// Message gives the event the order's own id, so that an order published twice is recognised. A random UUID for each call of
// Publish would make two events of it.
func (o Order) Message() (*message.Message, error) {
	payload, err := json.Marshal(o)
	return message.NewMessage(o.ID, payload), err
}

// ParseOrder reads the event.
func ParseOrder(msg *message.Message) (Order, error) {
	var order Order
	if err := json.Unmarshal(msg.Payload, &order); err != nil {
		return Order{}, fmt.Errorf("parse order: %w", err)
	}
	return order, nil
}

// Reserved is the event that the inventory service produces.
type Reserved struct {
	Order
	Left int `json:"left"`
}

// Message may take a random UUID: it is stored once, with the effect, and keeps the UUID whenever the relay repeats it.
func (r Reserved) Message() (*message.Message, error) {
	payload, err := json.Marshal(r)
	return message.NewMessage(watermill.NewUUID(), payload), err
}
