package inbox

import (
	"database/sql"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

func validateLogger(logger watermill.LoggerAdapter) error {
	if logger != nil && sqltx.IsNil(logger) {
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
	if !ok || sqltx.IsNil(c.Schema) || level == sql.LevelDefault || slices.Contains(limiter.Isolations(), level) {
		return nil
	}
	return fmt.Errorf("TxOptions.Isolation is %s: the drivers of %T know %v", level, c.Schema, limiter.Isolations())
}
