package main

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/watermill-inbox/inbox/inboxtest"
)

func TestExample(t *testing.T) {
	inboxtest.Server(t, "INBOX_TEST_REDIS", defaultRedis, func(address string) error {
		client := redis.NewClient(&redis.Options{Addr: address})
		defer func() { _ = client.Close() }()
		return client.Ping(context.Background()).Err()
	})
	// MySQL or MariaDB: openDatabase takes either.
	inboxtest.Server(t, "INBOX_TEST_MARIADB", defaultMariaDB, func(string) error {
		db, err := openDatabase(context.Background())
		if err != nil {
			return err
		}
		return db.Close()
	})
	if err := run(context.Background()); err != nil {
		t.Fatal(err)
	}
}
