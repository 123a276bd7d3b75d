package inbox

import (
	"database/sql"
	"fmt"
	"reflect"
	"slices"

	"github.com/ThreeDotsLabs/watermill"
)

// isNil also recognises an interface that holds a nil pointer or function: it is not equal to nil, and calling its methods panics.
func isNil(value any) bool {
	if value == nil {
		return true
	}
	v := reflect.ValueOf(value)
	return (v.Kind() == reflect.Pointer || v.Kind() == reflect.Func) && v.IsNil()
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
