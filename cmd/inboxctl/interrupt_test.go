package main

import (
	"bytes"
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
		release := db.lock(t, "SELECT seq FROM inbox_pending WHERE seq = 501 FOR UPDATE")
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

// lock runs a statement in a transaction that stays open until release.
func (db testDatabase) lock(t *testing.T, statement string) (release func()) {
	t.Helper()
	tx, err := db.admin.Begin()
	require.NoError(t, err)
	_, err = tx.Exec(statement)
	require.NoError(t, err)
	return func() { require.NoError(t, tx.Rollback()) }
}
