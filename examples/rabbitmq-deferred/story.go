package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/examples/internal/demo"
	"github.com/watermill-inbox/inbox/examples/internal/inventory"
)

// story plays the order service, which publishes one order twice, and the shop.
type story struct {
	w      io.Writer
	system string // stands before the names of the topics

	// between is called, by a test, when the reception is over and the processing not yet begun.
	between func()

	service
	db     *pgxpool.Pool
	broker message.Publisher
	acks   chan string
}

func (s *story) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if s.db, err = openPool(ctx); err != nil {
		return err
	}
	defer s.db.Close()
	if err := createTables(ctx, s.db); err != nil {
		return err
	}
	s.service = service{wsql.BeginnerFromPgx(s.db), topicsOf(s.system), &deferred.Wakeup{}, &deferred.Wakeup{}}
	s.acks = make(chan string, 100)

	broker, err := amqp.NewPublisher(inventory.BrokerConfig(""), demo.Logger())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, broker.Close()) }()
	s.broker = broker
	shop, err := inventory.NewSubscriber("shop", demo.Logger(), s.topics.reserved, s.topics.poison)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shop.Close()) }()
	events, err := shop.Subscribe(ctx, s.topics.reserved)
	if err != nil {
		return err
	}
	refused, err := shop.Subscribe(ctx, s.topics.poison)
	if err != nil {
		return err
	}

	orders := newOrders()
	if err := s.whileReceiving(ctx, func() error { return s.receive(ctx, orders, refused) }); err != nil {
		return err
	}
	if s.between != nil {
		s.between()
	}
	return s.whileProcessing(ctx, func() error { return s.process(ctx, orders, events) })
}

func newOrders() []inventory.Order {
	var orders []inventory.Order
	for quantity := 1; quantity <= 3; quantity++ {
		orders = append(orders, inventory.Order{ID: watermill.NewShortUUID(), Article: inventory.Article, Quantity: quantity})
	}
	return orders
}

// whileReceiving runs f while orders are taken from RabbitMQ.
func (s *story) whileReceiving(ctx context.Context, f func() error) (err error) {
	subscriber, err := inventory.NewSubscriber("inventory", demo.Logger(), s.topics.orders)
	if err != nil {
		return err
	}
	router, err := s.newReception(subscriber, s.broker, s.watch)
	if err != nil {
		return err
	}
	return whileRunning(ctx, f, router)
}

// whileProcessing runs f while everything runs.
func (s *story) whileProcessing(ctx context.Context, f func() error) error {
	relay, err := s.newRelay(s.broker)
	if err != nil {
		return err
	}
	processing, err := s.newProcessing(inbox.HandlePgxTx(reserve))
	if err != nil {
		return err
	}
	return s.whileReceiving(ctx, func() error { return whileRunning(ctx, f, processing, relay) })
}

func whileRunning(ctx context.Context, f func() error, runners ...demo.Runner) error {
	stop, err := demo.Start(ctx, runners...)
	if err != nil {
		return err
	}
	return errors.Join(f(), stop())
}

// receive publishes orders while nobody processes them.
func (s *story) receive(ctx context.Context, orders []inventory.Order, refused <-chan *message.Message) error {
	changed := orders[1]
	changed.Quantity = 20 // under the same id
	for _, order := range append(orders[:2:2], orders[1], changed, orders[2]) {
		if err := s.order(ctx, order); err != nil {
			return err
		}
	}
	if err := s.refused(ctx, refused); err != nil {
		return err
	}
	return s.await(ctx, "processing is down", counts{pending: 3, left: inventory.Stock})
}

// order publishes one and waits for RabbitMQ's ack of its delivery.
func (s *story) order(ctx context.Context, order inventory.Order) error {
	msg, err := order.Message()
	if err != nil {
		return err
	}
	if err := s.broker.Publish(s.topics.orders, msg); err != nil {
		return err
	}
	select {
	case id := <-s.acks:
		fmt.Fprintf(s.w, "order service   order %s: %d %s, acked\n", id, order.Quantity, order.Article)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the ack of order %s: %w", order.ID, ctx.Err())
	}
}

// watch tells when RabbitMQ gets an ack.
func (s *story) watch(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		go func() {
			select {
			case <-msg.Acked():
				s.acks <- msg.UUID
			case <-msg.Nacked():
			}
		}()
		return h(msg)
	}
}

func (s *story) refused(ctx context.Context, refused <-chan *message.Message) error {
	select {
	case msg := <-refused:
		msg.Ack()
		order, err := inventory.ParseOrder(msg)
		fmt.Fprintf(s.w, "poison queue    order %s: %d %s: another content than before\n", order.ID, order.Quantity, order.Article)
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the refused order: %w", ctx.Err())
	}
}

// process receives the events of the shop until all orders are reserved; then one is published once more.
func (s *story) process(ctx context.Context, orders []inventory.Order, events <-chan *message.Message) error {
	waiting := map[string]bool{}
	for _, order := range orders {
		waiting[order.ID] = true
	}
	for len(waiting) > 0 {
		select {
		case msg := <-events:
			var event inventory.Reserved
			if err := json.Unmarshal(msg.Payload, &event); err != nil {
				return fmt.Errorf("parse event: %w", err)
			}
			msg.Ack()
			delete(waiting, event.ID)
			fmt.Fprintf(s.w, "shop            stock-reserved for order %s: %d %s, %d left\n", event.ID, event.Quantity, event.Article, event.Left)
		case <-ctx.Done():
			return fmt.Errorf("orders without an event: %v: %w", waiting, ctx.Err())
		}
	}
	if err := s.order(ctx, orders[1]); err != nil {
		return err
	}
	return s.await(ctx, "all is done", counts{processed: 3, left: inventory.Stock - 1 - 2 - 3, reserved: 1 + 2 + 3})
}

// counts are what is durable.
type counts struct{ pending, processed, outgoing, left, reserved int }

func (s *story) count(ctx context.Context) (c counts, err error) {
	for queue, n := range map[deferred.Queue]*int{deferred.Pending: &c.pending, deferred.Outgoing: &c.outgoing} {
		store, err := deferred.NewStore(s.pool, schema, queue, demo.Logger())
		if err != nil {
			return c, err
		}
		found, err := store.Count(ctx)
		if err != nil {
			return c, err
		}
		for _, f := range found {
			*n += int(f.Pending + f.Suspect + f.Claimed + f.Waiting + f.Dead)
		}
	}
	err = s.db.QueryRow(ctx, `SELECT (SELECT COUNT(*) FROM example_deferred_inbox), (SELECT available FROM example_deferred_stock),
		(SELECT COALESCE(SUM(quantity), 0) FROM example_deferred_reservations)`).Scan(&c.processed, &c.left, &c.reserved)
	return c, err
}

// await waits until the counts are as they should be.
func (s *story) await(ctx context.Context, what string, want counts) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		found, err := s.count(ctx)
		if err != nil {
			return err
		}
		if found == want {
			fmt.Fprintf(s.w, "database        %s: %d pending, %d processed, %d outgoing, %d of %d %s left, %d reserved\n",
				what, found.pending, found.processed, found.outgoing, found.left, inventory.Stock, inventory.Article, found.reserved)
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %+v, want %+v: %w", what, found, want, ctx.Err())
		}
	}
}
