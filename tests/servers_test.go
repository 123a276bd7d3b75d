package tests

import (
	"context"
	"database/sql"
	"time"
)

// Where the servers of the tests answer unless INBOX_TEST_POSTGRES, INBOX_TEST_MYSQL and INBOX_TEST_MARIADB say otherwise.
const (
	postgresDSN = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	mysqlDSN    = "root@tcp(127.0.0.1:3307)/test"
	mariadbDSN  = "root@tcp(127.0.0.1:3306)/test"
)

// pingSQL is for inboxtest.Server.
func pingSQL(driver string) func(dsn string) error {
	return func(dsn string) error {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return db.PingContext(ctx)
	}
}
