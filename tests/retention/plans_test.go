package retention_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/retention"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// A restored database has no statistics, and a table that grew fast has old ones: statements read by the primary key nevertheless, and sort no more than a window.
func TestPlans_need_no_statistics(t *testing.T) {
	t.Parallel()
	onEach(t, func(l *lab) {
		l.receive("c", "topic", "waits")
		l.receive("c", "another topic", "waits")
		l.double(20_000)
		l.exec("UPDATE inbox_messages SET processed_at = " + l.now() + " WHERE message_id <> " + l.literal("first"))
		l.exec("INSERT INTO inbox_pending (consumer, topic, producer, message_id, fingerprint, ordering_key, uuid, metadata, payload, reception, received_at, due_at)" +
			" SELECT p.consumer, p.topic, p.producer, m.message_id, p.fingerprint, p.ordering_key, p.uuid, p.metadata, p.payload, p.reception, p.received_at, p.due_at" +
			" FROM inbox_pending p CROSS JOIN inbox_messages m WHERE m.message_id <> " + l.literal("first"))

		recorder := &databases.Recorder{Beginner: l.pool}
		cleaner, err := retention.NewCleaner(recorder, retention.Config{Schema: l.Schema, Horizon: time.Hour, Pause: time.Millisecond}, nil)
		require.NoError(l, err)
		report, err := cleaner.RunOnce(context.Background())
		require.NoError(l, err)
		require.EqualValues(l, 1, report.Removed())
		identities, err := retention.NewIdentities(recorder, l.Schema, nil)
		require.NoError(l, err)
		_, err = identities.Find(context.Background(), "c", inbox.Identity{ID: "first"})
		require.ErrorIs(l, err, retention.ErrNotFound)
		require.Equal(l, l.Driver == "pgx", len(recorder.With("set_config")) > 0)

		for kind, texts := range map[string][]string{
			"consumers": {"SELECT consumer FROM"},
			"topics":    {"SELECT topic FROM"},
			"window":    {"WITH w AS"},
			"pending":   {"SELECT message_id FROM", "inbox_pending"},
			"remove":    {"DELETE FROM"},
			"find":      {"SELECT fingerprint"},
		} {
			statements := recorder.With(texts...)
			require.NotEmpty(l, statements, kind)
			l.requireIndex(statements)
		}
	})
}

// requireIndex asks the engine how it runs statements: by the primary key, never through the whole table.
func (l *lab) requireIndex(statements []string) {
	l.Helper()
	explain, bad := "EXPLAIN ", regexp.MustCompile(`Seq Scan on (inbox_|p\b)`)
	switch l.Driver {
	case "mysql": // id, select_type, table, and on MySQL partitions, then type
		if l.count("SELECT VERSION() LIKE '%MariaDB%'") == 0 {
			explain = "EXPLAIN FORMAT=TRADITIONAL "
		}
		bad = regexp.MustCompile(`\| (inbox_messages|inbox_pending|a|p) \| ( \| )?(ALL|index) \|`)
	case "sqlite":
		explain, bad = "EXPLAIN QUERY PLAN ", regexp.MustCompile(`SCAN (inbox_messages|inbox_pending|a|p)\b`)
	}
	require.Regexp(l, bad, l.plan(explain+"DELETE FROM inbox_messages WHERE fingerprint = "+l.literal("x")), "the test would not see it")
	for _, statement := range statements {
		plan := l.plan(explain + statement)
		require.NotRegexp(l, bad, plan, "%.300s", statement)
		require.NotRegexp(l, regexp.MustCompile(`filesort.*inbox_messages|Sort Key: a\.`), plan, "%.300s", statement)
	}
}

func (l *lab) plan(query string) string {
	l.Helper()
	tx, err := l.db.Begin()
	require.NoError(l, err)
	defer func() { _ = tx.Rollback() }()
	if avoider, ok := l.Schema.(deferred.SortAvoider); ok && !strings.Contains(query, "DELETE") {
		_, err := tx.Exec(avoider.AvoidSort().Query)
		require.NoError(l, err)
	}
	rows, err := tx.Query(query)
	require.NoError(l, err, "%.300s", query)
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	require.NoError(l, err)
	var lines []string
	for rows.Next() {
		values := make([][]byte, len(columns))
		targets := make([]any, len(columns))
		for n := range values {
			targets[n] = &values[n]
		}
		require.NoError(l, rows.Scan(targets...))
		line := "|"
		for _, value := range values {
			line += " " + string(value) + " |"
		}
		lines = append(lines, line)
	}
	require.NoError(l, rows.Err())
	return strings.Join(lines, "\n")
}
