package main

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/watermill-inbox/inbox/examples/internal/inventory"
	"github.com/watermill-inbox/inbox/inboxtest"
)

func TestExample(t *testing.T) {
	inboxtest.Server(t, "INBOX_TEST_RABBITMQ", inventory.DefaultBroker, inventory.PingBroker)
	inboxtest.Server(t, "INBOX_TEST_POSTGRES", defaultAddress, func(address string) error {
		connection, err := pgx.Connect(context.Background(), address)
		if err != nil {
			return err
		}
		return connection.Close(context.Background())
	})
	if err := run(context.Background()); err != nil {
		t.Fatal(err)
	}
}
