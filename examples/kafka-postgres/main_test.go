package main

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/watermill-inbox/inbox/inboxtest"
)

const variable = "INBOX_TEST_KAFKA"

// TestExample plays on franz-go's broker in this process, and on a real one only where somebody named it.
func TestExample(t *testing.T) {
	inboxtest.Server(t, "INBOX_TEST_POSTGRES", defaultPostgres, func(address string) error {
		connection, err := pgx.Connect(context.Background(), address)
		if err != nil {
			return err
		}
		return connection.Close(context.Background())
	})
	named := os.Getenv(variable)
	t.Run("kfake", func(t *testing.T) {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cluster.Close)
		t.Setenv(variable, cluster.ListenAddrs()[0])
		runExample(t)
	})
	if named != "" && named != inboxtest.Unavailable {
		t.Run("real", runExample)
	}
}

func runExample(t *testing.T) {
	if err := run(context.Background()); err != nil {
		t.Fatal(err)
	}
}
