package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInit(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		if _, path, ok := sqliteFile(db); ok {
			require.Contains(t, db.run(t, "verify").fails(t, 1), "there is no file")
			require.NoFileExists(t, path, "only init makes one")
		} else {
			require.Contains(t, db.run(t, "verify").fails(t, 3), "is missing")
		}

		require.Regexp(t, `(?m)^.inbox_messages.  created$`, db.run(t, "init", "--tables", "messages").succeeds(t))
		require.Zero(t, db.count(t, "inbox_messages"))
		r := db.run(t, "verify")
		require.Regexp(t, `.inbox_pending. is missing, .inbox_outgoing. is missing$`, r.fails(t, 3))
		require.Regexp(t, `(?m)^.inbox_pending. +missing$`, r.stdout)
		db.run(t, "verify", "--tables", "messages").succeeds(t)

		var report tablesReport
		require.NoError(t, json.Unmarshal([]byte(db.run(t, "init", "--output", "json").succeeds(t)), &report))
		require.Equal(t, []string{"ok", "created", "created"}, []string{report.Tables[0].State, report.Tables[1].State, report.Tables[2].State})
		require.Zero(t, db.count(t, "inbox_pending"))
		require.Zero(t, db.count(t, "inbox_outgoing"))
		db.run(t, "verify").succeeds(t)
		require.NotContains(t, db.run(t, "init").succeeds(t), "created")
	})
}

// What --print prints makes the tables that verify wants.
func TestInit_print(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		for _, kind := range []string{"messages", "pending", "outgoing"} {
			db.exec(t, db.run(t, "init", "--print", "--tables", kind).succeeds(t))
		}
		db.run(t, "verify").succeeds(t)
	})
}

// No database is asked: the scheme alone is enough.
func TestInit_print_without_database(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"postgres", "mysql", "sqlite"} {
		golden(t, "ddl-"+scheme+".sql", inboxctl(t, []string{"INBOX_DSN=" + scheme + ":"}, "init", "--print").succeeds(t))
	}
	require.Contains(t, inboxctl(t, []string{"INBOX_DSN=mysql:", "INBOX_PENDING_TABLE=app.waiting"}, "init", "--print").succeeds(t), "`app`.`waiting`")
	require.Contains(t, inboxctl(t, []string{"INBOX_DSN=mysql:"}, "init", "--print", "--pending-table", "x y").fails(t, 2), `table name "x y"`)
}

// A table of another shape, and none, give one line and their exit code, whatever the command.
func TestTableOfAnotherShape(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.exec(t, "CREATE TABLE inbox_messages (consumer INTEGER)")
		db.exec(t, "CREATE TABLE inbox_pending (consumer INTEGER)")
		for _, args := range [][]string{{"verify"}, {"init"}, {"status"}, {"list"}, {"show", "1"}, {"redrive", "1", "--yes"}, {"discard", "1", "--dry-run"},
			{"forget", "--consumer", "c", "--id", "1", "--yes"}, {"clean", "--older-than", "30d", "--yes"}, {"show", "--consumer", "c", "--id", "1"}} {
			require.Contains(t, db.run(t, args...).fails(t, 3), "inbox_", args)
		}
		require.Contains(t, db.run(t, "verify").stdout, "message_id is missing")
		require.Contains(t, db.run(t, "list", "--queue", "outgoing").fails(t, 3), "does not exist, or this user may not see it: run inboxctl init")
		require.Contains(t, db.run(t, "list", "--pending-table", "elsewhere").fails(t, 3), "elsewhere")
		require.Zero(t, db.count(t, "inbox_pending"))
	})
}

func sqliteFile(db testDatabase) (dir, path string, ok bool) {
	if db.dsn[:7] != "sqlite:" {
		return "", "", false
	}
	_ = os.Remove(db.dsn[7:])
	return filepath.Dir(db.dsn[7:]), db.dsn[7:], true
}
