package inbox

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5"
)

// isNil also recognises an interface that holds a nil pointer or function: it is not equal to nil, and calling its methods panics.
func isNil(value any) bool {
	if value == nil {
		return true
	}
	v := reflect.ValueOf(value)
	return (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil()
}

// validatePool refuses databases that cannot serve two messages at once, or cannot continue after a lost connection.
func validatePool(db wsql.Beginner) error {
	switch {
	case db == nil:
		return errors.New("db is nil")
	case isNil(db):
		return fmt.Errorf("db is a nil %T", db)
	}

	var handle any = db
	switch beginner := db.(type) {
	case wsql.StdSQLBeginner:
		handle = beginner.SQLBeginner
	case *wsql.StdSQLBeginner:
		handle = beginner.SQLBeginner
	case wsql.PgxBeginner:
		handle = beginner.Conn
	case *wsql.PgxBeginner:
		handle = beginner.Conn
	}

	switch handle.(type) {
	case nil:
		return errors.New("db wraps nil")
	case *sql.Conn, *pgx.Conn, interface{ Conn() *pgx.Conn }:
		return fmt.Errorf("db is a single connection (%T): hand in the pool, *sql.DB or *pgxpool.Pool", handle)
	}
	if isNil(handle) {
		return fmt.Errorf("db wraps a nil %T", handle)
	}
	return nil
}

func validateLogger(logger watermill.LoggerAdapter) error {
	if logger != nil && isNil(logger) {
		return fmt.Errorf("logger is a nil %T", logger)
	}
	return nil
}

// validateIsolation refuses at start what would fail every BEGIN.
func (c Config) validateIsolation() error {
	if c.TxOptions == nil {
		return nil
	}
	level := c.TxOptions.Isolation
	if level < sql.LevelDefault || level > sql.LevelLinearizable {
		return fmt.Errorf("TxOptions.Isolation is not a level: %d", level)
	}
	limiter, ok := c.Schema.(IsolationLimiter)
	if !ok || isNil(c.Schema) || level == sql.LevelDefault || slices.Contains(limiter.Isolations(), level) {
		return nil
	}
	return fmt.Errorf("TxOptions.Isolation is %s: the drivers of %T know %v", level, c.Schema, limiter.Isolations())
}
