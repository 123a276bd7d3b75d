package main

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/watermill-inbox/inbox/examples/internal/inventory"
	"github.com/watermill-inbox/inbox/inboxtest"
)

// durable is what a connection of its own finds when all is over.
type durable struct {
	rows, ids, unacked, poisoned                int // in the broker's tables
	available, reservations, reserved           int
	identities, events, eventsOrders, unrelayed int
	once                                        int // orders with one reservation, one identity and one event
}

func TestExample(t *testing.T) {
	ctx := context.Background()
	address := inboxtest.Server(t, "INBOX_TEST_POSTGRES", defaultPostgres, func(address string) error {
		connection, err := pgx.Connect(ctx, address)
		if err != nil {
			return err
		}
		return connection.Close(ctx)
	})
	if err := run(ctx); err != nil {
		t.Fatal(err)
	}

	want := durable{
		rows: 3, ids: 2,
		available: inventory.Stock - 1 - 2, reservations: 2, reserved: 1 + 2,
		identities: 2, events: 2, eventsOrders: 2,
		once: 2,
	}
	if got := find(t, address); got != want {
		t.Fatalf("durable is\n%+v, want\n%+v", got, want)
	}
}

func find(t *testing.T, address string) (d durable) {
	t.Helper()
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close(ctx) }()
	err = connection.QueryRow(ctx, `
		WITH events AS ( -- the payload of the forwarder's envelope is the event
			SELECT acked, convert_from(decode(payload->>'payload', 'base64'), 'UTF8')::json->>'order_id' AS order_id
			FROM watermill_example_sql_outbox
		), identities AS (
			SELECT convert_from(message_id, 'UTF8') AS order_id FROM example_sql_inbox
		), orders AS (
			SELECT DISTINCT uuid AS order_id FROM watermill_example_sql_orders
		)
		SELECT
			(SELECT COUNT(*) FROM watermill_example_sql_orders),
			(SELECT COUNT(*) FROM orders),
			(SELECT COUNT(*) FROM watermill_example_sql_orders WHERE NOT acked),
			(SELECT COUNT(*) FROM watermill_example_sql_orders_poison),
			(SELECT available FROM example_sql_stock),
			(SELECT COUNT(*) FROM example_sql_reservations),
			(SELECT COALESCE(SUM(quantity), 0) FROM example_sql_reservations),
			(SELECT COUNT(*) FROM identities),
			(SELECT COUNT(*) FROM events),
			(SELECT COUNT(DISTINCT order_id) FROM events),
			(SELECT COUNT(*) FROM events WHERE NOT acked),
			(SELECT COUNT(*) FROM orders o WHERE
				(SELECT COUNT(*) FROM example_sql_reservations r WHERE r.order_id = o.order_id) = 1 AND
				(SELECT COUNT(*) FROM identities i WHERE i.order_id = o.order_id) = 1 AND
				(SELECT COUNT(*) FROM events e WHERE e.order_id = o.order_id) = 1)`).
		Scan(&d.rows, &d.ids, &d.unacked, &d.poisoned,
			&d.available, &d.reservations, &d.reserved,
			&d.identities, &d.events, &d.eventsOrders, &d.unrelayed, &d.once)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
