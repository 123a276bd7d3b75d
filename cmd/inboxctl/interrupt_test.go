package main

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A signal ends the work between two batches, and what is said of it is exact.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.receive(t, stock, messages(3*pageSize)...)
		db.exec(t, "UPDATE inbox_pending SET state = 4")
		locked := db.lock(t, fmt.Sprintf("UPDATE inbox_pending SET attempts = 7 WHERE seq = %d", db.nth(t, 1)))
		term := inTerminal(t, []string{"INBOX_DSN=" + db.dsn}, "redrive", "--yes", "--consumer", stock, "--all", "-o", "json")
		term.await(t, "(0/1500)")
		term.keys(t, "C-c")
		term.await(t, "^C")
		locked.rollback(t)

		screen, _ := term.ends(t, 130)
		match := regexp.MustCompile(`inboxctl: interrupted: (\d+) of 1500 messages are redriven`).FindStringSubmatch(screen)
		require.NotNil(t, match, screen)
		redriven, _ := strconv.Atoi(match[1])
		require.Equal(t, redriven, db.count(t, "inbox_pending WHERE state = 0"))
		require.Equal(t, 3*pageSize-redriven, db.count(t, "inbox_pending WHERE state = 4"))
		require.Contains(t, screen, fmt.Sprintf(`"changed": %d`, redriven))
		require.Contains(t, []int{0, pageSize}, redriven)
	})
}

// What was dead when the command started, and is not when its turn comes, is left alone; the rest of its batch is not.
func TestSomebodyElseWasFaster(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.receive(t, stock, messages(2*pageSize)...)
		db.exec(t, "UPDATE inbox_pending SET state = 4")
		locked := db.lock(t, fmt.Sprintf("UPDATE inbox_pending SET state = 0, attempts = 7 WHERE seq = %d", db.nth(t, 1)))
		term := inTerminal(t, []string{"INBOX_DSN=" + db.dsn}, "discard", "--yes", "--consumer", stock, "--all")
		term.await(t, "(0/1000)")
		require.NoError(t, locked.Commit())

		screen, _ := term.ends(t, 0)
		require.Contains(t, screen, "999 messages discarded. 1 skipped, because somebody else has changed them.\n")
		require.Equal(t, 1, db.count(t, "inbox_pending WHERE attempts = 7"))
		require.Equal(t, 1, db.count(t, "inbox_pending"))
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.receive(t, stock, messages(2)...)
		db.exec(t, "UPDATE inbox_pending SET state = 4")
		locked := db.lock(t, "UPDATE inbox_pending SET attempts = 7 WHERE seq = 1")
		r := db.run(t, "discard", "--yes", "--timeout", "500ms", "1")
		locked.rollback(t)
		require.Contains(t, r.fails(t, 1), "within --timeout 500ms")
		require.Equal(t, 2, db.count(t, "inbox_pending WHERE state = 4 AND attempts = 0"))
		db.run(t, "discard", "--yes", "1").succeeds(t)
	})
}
