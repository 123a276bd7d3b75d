package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A signal ends the work between two batches, and what is said of it is exact.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		if db.schema.OneWriter() {
			return // a lock on the second batch would hold up the first one, too
		}
		db.receive(t, stock, messages(3*pageSize)...)
		db.exec(t, "UPDATE inbox_pending SET state = 4")
		release := db.lock(t, fmt.Sprintf("SELECT seq FROM inbox_pending WHERE seq = %d FOR UPDATE", db.nth(t, pageSize+1)))
		var stdout, stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), binary, "redrive", "--yes", "--consumer", stock, "--all", "-o", "json")
		cmd.Env, cmd.Stdout, cmd.Stderr = []string{"INBOX_DSN=" + db.dsn}, &stdout, &stderr
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return db.count(t, "inbox_pending WHERE state = 0") == pageSize }, 30*time.Second, 10*time.Millisecond)

		require.NoError(t, cmd.Process.Signal(os.Interrupt))
		release()

		_ = cmd.Wait()
		require.Equal(t, 130, cmd.ProcessState.ExitCode(), stderr.String())
		require.Equal(t, "inboxctl: interrupted: 1000 of 1500 messages are redriven\n", stderr.String())
		require.Contains(t, stdout.String(), `"changed": 1000`)
		require.Equal(t, 2*pageSize, db.count(t, "inbox_pending WHERE state = 0"))
		require.Equal(t, pageSize, db.count(t, "inbox_pending WHERE state = 4"))
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.receive(t, stock, messages(2)...)
		db.exec(t, "UPDATE inbox_pending SET state = 4")
		lock := "SELECT seq FROM inbox_pending WHERE seq = 1 FOR UPDATE"
		if db.schema.OneWriter() {
			lock = "UPDATE inbox_pending SET attempts = 7 WHERE seq = 1"
		}
		release := db.lock(t, lock)
		r := db.run(t, "discard", "--yes", "--timeout", "500ms", "1")
		release()
		require.Contains(t, r.fails(t, 1), "within --timeout 500ms")
		require.Equal(t, 2, db.count(t, "inbox_pending WHERE state = 4 AND attempts = 0"))
		db.run(t, "discard", "--yes", "1").succeeds(t)
	})
}

// nth is the number of the n-th message. Numbers have gaps.
func (db testDatabase) nth(t *testing.T, n int) (number int64) {
	t.Helper()
	require.NoError(t, db.admin.QueryRow(fmt.Sprintf("SELECT seq FROM inbox_pending ORDER BY seq LIMIT 1 OFFSET %d", n-1)).Scan(&number))
	return number
}

// lock runs a statement in a transaction that stays open until release.
func (db testDatabase) lock(t *testing.T, statement string) (release func()) {
	t.Helper()
	tx, err := db.admin.Begin()
	require.NoError(t, err)
	_, err = tx.Exec(statement)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback()) }
}

// What was dead when the command started, and is not when its turn comes, is left alone; the rest of its batch is not.
func TestSomebodyElseWasFaster(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		if db.schema.OneWriter() {
			return // as above
		}
		db.receive(t, stock, messages(2*pageSize)...)
		db.exec(t, "UPDATE inbox_pending SET state = 4")
		tx, err := db.admin.Begin()
		require.NoError(t, err)
		_, err = tx.Exec(fmt.Sprintf("UPDATE inbox_pending SET state = 0, attempts = 7 WHERE seq = %d", db.nth(t, pageSize+1)))
		require.NoError(t, err)
		var stdout bytes.Buffer
		cmd := exec.CommandContext(t.Context(), binary, "discard", "--yes", "--consumer", stock, "--all")
		cmd.Env, cmd.Stdout = []string{"INBOX_DSN=" + db.dsn}, &stdout
		require.NoError(t, cmd.Start())
		require.Eventually(t, func() bool { return db.count(t, "inbox_pending") == pageSize }, 30*time.Second, 10*time.Millisecond)
		require.NoError(t, tx.Commit())

		require.NoError(t, cmd.Wait())
		require.Equal(t, "999 messages discarded. 1 skipped, because somebody else has changed them.\n", stdout.String())
		require.Equal(t, 1, db.count(t, "inbox_pending WHERE attempts = 7"))
		require.Equal(t, 1, db.count(t, "inbox_pending"))
	})
}
