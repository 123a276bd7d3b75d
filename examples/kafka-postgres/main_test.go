package main

import (
	"context"
	"os"
	"testing"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5"

	"github.com/watermill-inbox/inbox/inboxtest"
)

func TestExample(t *testing.T) {
	if os.Getenv("INBOX_TEST_KAFKA") == "" {
		t.Skip("#####  NOT TESTED: no broker in INBOX_TEST_KAFKA  #####")
	}
	inboxtest.Server(t, "INBOX_TEST_KAFKA", defaultKafka, func(address string) error {
		client, err := sarama.NewClient([]string{address}, nil)
		if err != nil {
			return err
		}
		return client.Close()
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
