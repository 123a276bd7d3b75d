// Package sqltx ends transactions in bounded time with every driver that watermill-sql knows.
package sqltx

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// CheckPool refuses databases that cannot serve two messages at once, or cannot continue after a lost connection.
func CheckPool(db wsql.Beginner) error {
	switch {
	case db == nil:
		return errors.New("db is nil")
	case IsNil(db):
		return fmt.Errorf("db is a nil %T", db)
	}

	handle := Unwrap(db)
	switch handle.(type) {
	case nil:
		return errors.New("db wraps nil")
	case *sql.Conn, *pgx.Conn, interface{ Conn() *pgx.Conn }:
		return fmt.Errorf("db is a single connection (%T): hand in the pool, *sql.DB or *pgxpool.Pool", handle)
	}
	if IsNil(handle) {
		return fmt.Errorf("db wraps a nil %T", handle)
	}
	return nil
}

// Unwrap returns what a Beginner of watermill-sql wraps, a *sql.DB or a *pgxpool.Pool as a rule, and any other Beginner itself.
func Unwrap(db wsql.Beginner) any {
	switch beginner := db.(type) {
	case wsql.StdSQLBeginner:
		return beginner.SQLBeginner
	case *wsql.StdSQLBeginner:
		return beginner.SQLBeginner
	case wsql.PgxBeginner:
		return beginner.Conn
	case *wsql.PgxBeginner:
		return beginner.Conn
	}
	return db
}

// PoolSize returns how many connections the pool may have, 0 if that is not bounded or not known.
func PoolSize(db wsql.Beginner) int {
	switch pool := Unwrap(db).(type) {
	case *sql.DB:
		return pool.Stats().MaxOpenConnections
	case *pgxpool.Pool:
		return int(pool.Config().MaxConns)
	}
	return 0
}

// IsNil also recognises an interface that holds a nil pointer or function: it is not equal to nil, and calling its methods panics.
func IsNil(value any) bool {
	if value == nil {
		return true
	}
	v := reflect.ValueOf(value)
	return (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil()
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
