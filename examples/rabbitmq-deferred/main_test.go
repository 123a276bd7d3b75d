package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/watermill-inbox/inbox/examples/internal/inventory"
	"github.com/watermill-inbox/inbox/inboxtest"
)

// durable is what connections of their own find in PostgreSQL and RabbitMQ.
type durable struct {
	pending, identities, outgoing     int
	available, reservations, reserved int
	once                              int // orders with one reservation and one identity
	queued                            int // orders in RabbitMQ
}

func TestExample(t *testing.T) {
	broker := inboxtest.Server(t, "INBOX_TEST_RABBITMQ", inventory.DefaultBroker, inventory.PingBroker)
	database := inboxtest.Server(t, "INBOX_TEST_POSTGRES", defaultAddress, func(address string) error {
		connection, err := pgx.Connect(context.Background(), address)
		if err != nil {
			return err
		}
		return connection.Close(context.Background())
	})
	system := "rabbitmq-deferred-" + watermill.NewShortUUID()
	queues := connect(t, broker)
	t.Cleanup(func() { remove(t, queues, topicsOf(system)) })

	expect := func(when string, want durable) {
		if got := find(t, database, queues, topicsOf(system)); got != want {
			t.Errorf("%s:\ndurable is %+v\nwant       %+v", when, got, want)
		}
	}
	var out bytes.Buffer
	s := &story{w: &out, system: system, between: func() {
		expect("received, and every part of the service has ended", durable{pending: 3, available: inventory.Stock})
	}}
	if err := s.run(context.Background()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	expect("processed and relayed", durable{identities: 3, available: inventory.Stock - 6, reservations: 3, reserved: 6, once: 3})
}

func connect(t *testing.T, address string) *amqp.Channel {
	t.Helper()
	connection, err := amqp.Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	channel, err := connection.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return channel
}

func remove(t *testing.T, queues *amqp.Channel, topics topics) {
	t.Helper()
	for _, queue := range []struct{ topic, service string }{{topics.orders, "inventory"}, {topics.reserved, "shop"}, {topics.poison, "shop"}} {
		if _, err := queues.QueueDelete(queue.topic+"_"+queue.service, false, false, false); err != nil {
			t.Error(err)
		}
		if err := queues.ExchangeDelete(queue.topic, false, false); err != nil {
			t.Error(err)
		}
	}
}

func find(t *testing.T, database string, queues *amqp.Channel, topics topics) (d durable) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	connection, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close(ctx) }()
	err = connection.QueryRow(ctx, `
		WITH identities AS (
			SELECT convert_from(message_id, 'UTF8') AS order_id FROM example_deferred_inbox
		), reservations AS (
			SELECT order_id, COUNT(*) AS n FROM example_deferred_reservations GROUP BY order_id
		)
		SELECT
			(SELECT COUNT(*) FROM example_deferred_pending),
			(SELECT COUNT(*) FROM identities),
			(SELECT COUNT(*) FROM example_deferred_outgoing),
			(SELECT available FROM example_deferred_stock),
			(SELECT COUNT(*) FROM example_deferred_reservations),
			(SELECT COALESCE(SUM(quantity), 0) FROM example_deferred_reservations),
			(SELECT COUNT(*) FROM identities JOIN reservations USING (order_id) WHERE n = 1)`).
		Scan(&d.pending, &d.identities, &d.outgoing, &d.available, &d.reservations, &d.reserved, &d.once)
	if err != nil {
		t.Fatal(err)
	}
	queue, err := queues.QueueDeclarePassive(topics.orders+"_inventory", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	d.queued = queue.Messages
	return d
}
