package inventory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/examples/internal/demo"
)

// Stock is what the article of the story has at the start.
const (
	Article = "apples"
	Stock   = 100
)

// Play starts the inventory service, publishes three orders, one of them twice, and returns when all is done.
func Play(ctx context.Context, service Service, deliveries demo.Reports) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	logger := demo.Logger()

	broker, err := amqp.NewPublisher(BrokerConfig(""), logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	shop, err := NewSubscriber("shop", logger, service.topics().reserved)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.Close()) }()
	events, err := shop.Subscribe(ctx, service.topics().reserved)
	if err != nil {
		return err
	}

	stop, err := service.start(ctx, broker, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	orders, err := publishOrders(broker, service.topics().orders)
	if err != nil {
		return err
	}
	return show(ctx, orders, deliveries, events)
}

// start runs the consumer and the relay, in a real system perhaps in different processes.
func (s Service) start(ctx context.Context, broker message.Publisher, logger watermill.LoggerAdapter) (stop func() error, err error) {
	subscriber, err := NewSubscriber("inventory", logger, s.topics().orders, s.topics().poison)
	if err != nil {
		return nil, err
	}
	router, err := s.newRouter(subscriber, broker, logger)
	if err != nil {
		return nil, err
	}
	relay, err := s.newRelay(broker, logger)
	if err != nil {
		return nil, err
	}

	return demo.Start(ctx, router, relay)
}

func publishOrders(broker message.Publisher, topic string) (orders map[string]bool, err error) {
	orders = map[string]bool{}
	for quantity := 1; quantity <= 3; quantity++ {
		order := Order{ID: watermill.NewShortUUID(), Article: Article, Quantity: quantity}
		orders[order.ID] = true

		times := 1
		if quantity == 2 {
			times = 2 // as a publisher does that got no answer
		}
		for range times {
			msg, err := order.Message()
			if err != nil {
				return nil, err
			}
			if err := broker.Publish(topic, msg); err != nil {
				return nil, err
			}
			fmt.Printf("order service   published order %s: %d %s\n", order.ID, order.Quantity, order.Article)
		}
	}
	return orders, nil
}

// show prints what happens until all orders are reserved and all four deliveries have ended.
func show(ctx context.Context, orders map[string]bool, deliveries demo.Reports, events <-chan *message.Message) error {
	for waiting := len(orders) + 1; waiting > 0 || len(orders) > 0; {
		select {
		case report := <-deliveries:
			if report.Err != nil {
				fmt.Printf("inventory inbox failed, the delivery is repeated: %v\n", report.Err)
				continue
			}
			waiting--
			fmt.Printf("inventory inbox %s\n", report.Outcome)
		case msg := <-events:
			var event Reserved
			if err := json.Unmarshal(msg.Payload, &event); err != nil {
				return fmt.Errorf("parse event: %w", err)
			}
			msg.Ack()
			delete(orders, event.ID)
			fmt.Printf("shop            received stock-reserved for order %s: %d %s, %d left\n", event.ID, event.Quantity, event.Article, event.Left)
		case <-ctx.Done():
			return fmt.Errorf("orders without an answer: %v: %w", orders, ctx.Err())
		}
	}
	return nil
}
