package main

import (
	"context"
	"testing"

	"github.com/watermill-inbox/inbox/examples/internal/inventory"
	"github.com/watermill-inbox/inbox/inboxtest"
)

func TestExample(t *testing.T) {
	inboxtest.Server(t, "INBOX_TEST_RABBITMQ", inventory.DefaultBroker, inventory.PingBroker)
	// MySQL or MariaDB: connect takes either.
	inboxtest.Server(t, "INBOX_TEST_MARIADB", defaultMariaDB, func(string) error {
		db, _, err := connect(context.Background())
		if err != nil {
			return err
		}
		return db.Close()
	})
	if err := run(context.Background()); err != nil {
		t.Fatal(err)
	}
}
