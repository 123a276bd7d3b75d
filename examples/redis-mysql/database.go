package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/watermill-inbox/inbox/examples/internal/demo"
)

const (
	defaultMySQL   = "root@tcp(127.0.0.1:3307)/test"
	defaultMariaDB = "root@tcp(127.0.0.1:3306)/test"
)

// openDatabase takes MySQL, or MariaDB where there is none: the code is the same.
func openDatabase(ctx context.Context) (*sql.DB, error) {
	var errs []error
	for _, address := range []string{demo.Env("INBOX_TEST_MYSQL", defaultMySQL), demo.Env("INBOX_TEST_MARIADB", defaultMariaDB)} {
		db, err := open(address)
		if err == nil {
			if err = db.PingContext(ctx); err == nil {
				return db, nil
			}
			_ = db.Close()
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func open(address string) (*sql.DB, error) {
	config, err := driver.ParseDSN(address)
	if err != nil {
		return nil, err
	}
	// The driver has no context in COMMIT: only this ends the wait for a server that does not answer.
	config.ReadTimeout = 10 * time.Second
	// The server ends a wait for a lock before the inbox (WaitTimeout, 5 s) has to close the connection to do so.
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	config.Params["innodb_lock_wait_timeout"] = "4"
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func createTables(ctx context.Context, db *sql.DB) error {
	for _, statement := range []string{
		`DROP TABLE IF EXISTS example_redis_stock`,
		`CREATE TABLE example_redis_stock (available INT NOT NULL)`,
		fmt.Sprintf(`INSERT INTO example_redis_stock VALUES (%d)`, stock),
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

func report(ctx context.Context, db *sql.DB) error {
	var available int
	if err := db.QueryRowContext(ctx, `SELECT available FROM example_redis_stock`).Scan(&available); err != nil {
		return err
	}
	fmt.Printf("database   %d of %d left\n", available, stock)
	if want := stock - 1 - 2; available != want {
		return fmt.Errorf("%d left, want %d", available, want)
	}
	return nil
}
