package inbox

import (
	"fmt"
	"strings"
)

// TableError says that a live table is not what the dialect's DDL creates. No deliveries can work with it.
type TableError struct {
	// Table is its name, quoted as in statements.
	Table string

	// Differences say what the table has, what it should have, and why. Without any the table does not exist.
	Differences []string
}

// Missing tells that the table does not exist, or that the user may not see it.
func (e *TableError) Missing() bool { return len(e.Differences) == 0 }

// Error returns the table and all differences.
func (e *TableError) Error() string {
	if e.Missing() {
		return fmt.Sprintf("table %s does not exist: run InitializeSchema or the dialect's DDL", e.Table)
	}
	return fmt.Sprintf("table %s is not what the inbox needs: %s", e.Table, strings.Join(e.Differences, "; "))
}
