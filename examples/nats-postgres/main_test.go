package main

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/watermill-inbox/inbox/inboxtest"
)

func TestExample(t *testing.T) {
	inboxtest.Server(t, "INBOX_TEST_NATS", nats.DefaultURL, func(address string) error {
		connection, err := nats.Connect(address)
		if err != nil {
			return err
		}
		connection.Close()
		return nil
	})
	inboxtest.Server(t, "INBOX_TEST_POSTGRES", defaultPostgres, func(address string) error {
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
