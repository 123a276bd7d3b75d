// Package modernc registers modernc.org/sqlite for the tests of these modules and the processes that they start. It opens a first database before anything
// else runs: SQLite initializes itself then, and with two first databases at once the race detector fails the test.
package modernc

import (
	"database/sql"
	"fmt"

	_ "modernc.org/sqlite" // the driver
)

func init() {
	db, err := sql.Open("sqlite", ":memory:")
	if err == nil {
		err = db.Ping()
	}
	if err != nil {
		panic(fmt.Errorf("open a first SQLite database: %w", err))
	}
	_ = db.Close()
}
