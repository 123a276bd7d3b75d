// Package sqltx ends transactions in bounded time with every driver that watermill-sql knows.
package sqltx

import (
	"database/sql"
	"errors"
	"fmt"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5"
)

// CheckPool refuses databases that cannot serve two messages at once, or cannot continue after a lost connection.
func CheckPool(db wsql.Beginner) error {
	var handle any = db
	switch beginner := db.(type) {
	case nil:
		return errors.New("db is nil")
	case wsql.StdSQLBeginner:
		handle = beginner.SQLBeginner
	case *wsql.StdSQLBeginner:
		handle = beginner.SQLBeginner
	case wsql.PgxBeginner:
		handle = beginner.Conn
	case *wsql.PgxBeginner:
		handle = beginner.Conn
	}

	switch handle := handle.(type) {
	case nil:
		return errors.New("db wraps nil")
	case *sql.DB:
		if handle == nil {
			return errors.New("db wraps a nil *sql.DB")
		}
	case *sql.Conn, *pgx.Conn, interface{ Conn() *pgx.Conn }:
		return fmt.Errorf("db is a single connection (%T): hand in the pool, *sql.DB or *pgxpool.Pool", handle)
	}
	return nil
}

// Native returns the transaction of pgx, if it is one.
func Native(tx wsql.Tx) (pgx.Tx, bool) {
	switch tx := tx.(type) {
	case *wsql.PgxTx:
		return tx.Tx, true
	case wsql.PgxTx:
		return tx.Tx, true
	default:
		return nil, false
	}
}
