package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/watermill-inbox/inbox/examples/internal/demo"
	"github.com/watermill-inbox/inbox/examples/internal/inventory"
)

type story struct {
	orders  *pgxpool.Pool // the broker's database
	db      *pgxpool.Pool // the inbox's
	reports demo.Reports
	shop    *shop
}

// play has two orders. The producer of the second one repeats itself, the broker repeats the first one.
func (s story) play(ctx context.Context) error {
	first := inventory.Order{ID: "order-" + watermill.NewShortUUID(), Article: inventory.Article, Quantity: 1}
	second := inventory.Order{ID: "order-" + watermill.NewShortUUID(), Article: inventory.Article, Quantity: 2}
	for _, happen := range []func() error{
		func() error { return s.insert(ctx, first) },
		func() error { return s.insert(ctx, second) },
		func() error { return s.insert(ctx, second) }, // as a producer does that got no answer
		func() error { return s.redeliver(ctx, first) },
	} {
		if err := happen(); err != nil {
			return err
		}
		if err := s.reports.Await(ctx); err != nil {
			return err
		}
	}
	if err := s.awaitAcks(ctx, s.orders, ordersTopic); err != nil {
		return err
	}
	if err := s.awaitAcks(ctx, s.db, outboxTopic); err != nil {
		return err
	}
	s.shop.report()
	return s.report(ctx)
}

// insert is a producer that knows the table and not Watermill. It gives the row the order's own id, and would give it the same one again.
func (s story) insert(ctx context.Context, order inventory.Order) error {
	payload, err := json.Marshal(order)
	if err != nil {
		return err
	}
	var offset int
	err = s.orders.QueryRow(ctx, `INSERT INTO watermill_example_sql_orders (uuid, payload) VALUES ($1, $2) RETURNING "offset"`,
		order.ID, payload).Scan(&offset)
	if err != nil {
		return err
	}
	fmt.Printf("orders     inserts %s: %d, as row %d\n", order.ID, order.Quantity, offset)
	return nil
}

// redeliver makes the row what it is after a crash between the COMMIT of the inbox and the ack.
func (s story) redeliver(ctx context.Context, order inventory.Order) error {
	if err := s.awaitAcks(ctx, s.orders, ordersTopic); err != nil {
		return err
	}
	if _, err := s.orders.Exec(ctx, `UPDATE watermill_example_sql_orders SET acked = FALSE WHERE uuid = $1`, order.ID); err != nil {
		return err
	}
	fmt.Printf("broker     lost the ack of %s and delivers it again\n", order.ID)
	return nil
}

// awaitAcks asks the table of a topic, because there is no signal.
func (s story) awaitAcks(ctx context.Context, pool *pgxpool.Pool, topic string) error {
	for {
		var waiting int
		err := pool.QueryRow(ctx, `SELECT COUNT(*) FROM `+schema.MessagesTable(topic)+` WHERE NOT acked`).Scan(&waiting)
		if err != nil {
			return fmt.Errorf("wait for the acks of %s: %w", topic, err)
		}
		if waiting == 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// report counts what is durable.
func (s story) report(ctx context.Context) error {
	var inserted, available, reservations, identities, events int
	err := s.orders.QueryRow(ctx, `SELECT COUNT(*) FROM watermill_example_sql_orders`).Scan(&inserted)
	if err != nil {
		return err
	}
	err = s.db.QueryRow(ctx, `SELECT (SELECT available FROM example_sql_stock), (SELECT COUNT(*) FROM example_sql_reservations),
		(SELECT COUNT(*) FROM example_sql_inbox), (SELECT COUNT(*) FROM watermill_example_sql_outbox)`).
		Scan(&available, &reservations, &identities, &events)
	if err != nil {
		return err
	}
	fmt.Printf("broker     %d rows\n", inserted)
	fmt.Printf("database   %d of %d left, %d reservations, %d identities, %d outgoing events\n",
		available, inventory.Stock, reservations, identities, events)
	return nil
}

// shop stands for the broker of those who listen: RabbitMQ, Kafka, whatever Watermill publishes to.
type shop struct {
	received chan *message.Message
}

func newShop() *shop { return &shop{received: make(chan *message.Message, 10)} }

// Publish of a real broker returns nil only when the broker has the messages, or the relay acks what never arrived.
func (s *shop) Publish(_ string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		s.received <- msg
	}
	return nil
}

func (s *shop) Close() error { return nil }

// report prints what came so far.
func (s *shop) report() {
	for range len(s.received) {
		fmt.Printf("shop       received %s\n", (<-s.received).Payload)
	}
}
