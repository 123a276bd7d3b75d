package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/retention"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.process(t, "invoice", messages(3)...)
		db.process(t, stock, message.NewMessage("other", nil))
		db.age(t, "invoice", 2*time.Hour, db.idIs("evt-1"))
		report := func(args ...string) (consumers []consumerReport) {
			return decode[struct{ Consumers []consumerReport }](t, db.run(t, append([]string{"status", "-o", "json"}, args...)...)).Consumers
		}

		// Without deferred mode there is no table of pending messages, unless one is named.
		direct := report()
		require.Len(t, direct, 2)
		require.Equal(t, "invoice", direct[0].Consumer)
		require.EqualValues(t, 2, *direct[0].ProcessedLastHour)
		require.Positive(t, *direct[0].Identities)
		require.Nil(t, direct[0].Queue)
		require.Regexp(t, `(?m)^invoice +2 +\d+ +- +- +- +- +- +-$`, db.run(t, "status").succeeds(t))
		for _, args := range [][]string{{"--queue", "pending"}, {"--pending-table", "elsewhere"}, {"--messages-table", "elsewhere"}} {
			db.run(t, append([]string{"status"}, args...)...).fails(t, 3)
		}

		db.receive(t, stock, messages(4)...)
		db.kill(t, stock, 4)
		db.receive(t, mail, messages(2)...)
		db.exec(t, "UPDATE inbox_pending SET state = 5 WHERE seq = 1")
		db.exec(t, "UPDATE inbox_pending SET received_at = received_at - 90000000 WHERE state = 0")
		both := report()
		require.Len(t, both, 3)
		require.Equal(t, []string{"invoice", stock, mail}, []string{both[0].Consumer, both[1].Consumer, both[2].Consumer})
		require.Equal(t, queueReport{}, *both[0].Queue)
		require.EqualValues(t, []int64{3, 1, 0}, []int64{both[1].Queue.Dead, both[1].Queue.Stripped, both[1].Queue.Pending})
		require.EqualValues(t, 1, *both[1].ProcessedLastHour)
		require.EqualValues(t, 2, both[2].Queue.Pending)
		require.GreaterOrEqual(t, both[2].Queue.OldestSeconds, 90.0)
		require.Zero(t, *both[2].Identities)
		require.Regexp(t, `(?m)^reserve-stock +1 +\d+ +0 +0 +0 +4 +- +-$`, db.run(t, "status").succeeds(t))
		require.Len(t, report("--consumer", mail), 1)
		require.Contains(t, db.run(t, "status", "--consumer", "nobody").fails(t, 4), "there is no consumer nobody")
		require.Len(t, decode[messageList](t, db.run(t, "list", "-o", "json", "--consumer", "invoice")).Messages, 0, "it is known: it has processed something")
		db.run(t, "init").succeeds(t)
		require.Empty(t, report("--queue", "outgoing"))
	})
}

func TestShow_processed(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.process(t, "c\xff", message.NewMessage("id\xfe", []byte("lamp")))
		report := decode[processedReport](t, db.run(t, "show", "-o", "json", "--consumer", `"c\xff"`, "--id", `"id\xfe"`))
		require.Equal(t, "id\xfe", string(report.IDBase64))
		require.Regexp(t, "^sha256:[0-9a-f]+$", report.Fingerprint)
		require.WithinDuration(t, time.Now(), report.Processed, time.Hour)
		require.Contains(t, db.run(t, "show", "--consumer", `"c\xff"`, "--id", `"id\xfe"`).succeeds(t), `id            "id\xfe"`)
		require.Contains(t, db.run(t, "show", "--consumer", `"c\xff"`, "--id", "other").fails(t, 4), "has not processed other")
	})
}

func TestForget_ids(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.process(t, stock, messages(4)...)
		db.process(t, mail, messages(4)...)
		db.receive(t, stock, message.NewMessage("evt-9", nil))
		db.exec(t, "UPDATE inbox_pending SET message_id = "+string(db.schema.AppendBytes(nil, "evt-4")))
		forget := func(args ...string) result {
			return db.run(t, append([]string{"forget", "--consumer", stock}, args...)...)
		}

		require.Contains(t, forget("--id", "evt-1").fails(t, 5), "--yes")
		r := forget("--id", "evt-1", "--dry-run")
		require.Equal(t, "1 identity would be forgotten.\n", r.succeeds(t))
		require.Contains(t, r.stderr, "evt-1")
		require.Contains(t, forget("--yes", "--id", "evt-1", "--id", "evt-7").fails(t, 4), "nothing to forget: evt-7")
		require.Contains(t, forget("--yes", "--id", "evt-1", "--producer", "p").fails(t, 4), "p / evt-1")
		require.Contains(t, forget("--yes", "--id", "evt-1", "--id", "evt-4").fails(t, 5), "so it is kept: evt-4; nothing was changed")
		require.Contains(t, db.run(t, "forget", "--yes", "--consumer", "nobody", "--id", "evt-1").fails(t, 4), "there is no consumer nobody")
		require.Equal(t, 8, db.count(t, "inbox_messages"))

		require.Equal(t, "2 identities forgotten.\n", forget("--yes", "--id", "evt-1", "--id", "evt-2", "--id", "evt-2").succeeds(t))
		require.Equal(t, 6, db.count(t, "inbox_messages"))
		require.Equal(t, 1, db.count(t, "inbox_messages WHERE "+db.idIs("evt-1")), "that of the other consumer stays")
		db.process(t, stock, messages(1)...) // as if it were new
	})
}

func TestForget_range(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.process(t, stock, messages(4)...)
		db.process(t, mail, messages(4)...)
		for _, consumer := range []string{stock, mail} {
			db.age(t, consumer, 2*time.Hour, db.idIs("evt-2"))
			db.age(t, consumer, 2*time.Hour, db.idIs("evt-3"))
			db.age(t, consumer, 4*time.Hour, db.idIs("evt-4"))
		}
		hours := func(n int) string { return time.Now().Add(time.Duration(n) * time.Hour).Format(time.RFC3339) }
		middle := []string{"--from", hours(-3), "--to", hours(-1)}
		forget := func(args ...string) result {
			return db.run(t, append(append([]string{"forget"}, middle...), args...)...)
		}

		r := forget("--consumer", stock, "--dry-run")
		require.Equal(t, "2 identities would be forgotten.\n", r.succeeds(t))
		require.Contains(t, r.stderr, "evt-3")
		require.NotContains(t, r.stderr, "evt-4")
		require.Contains(t, forget("--consumer", "nobody", "--yes").fails(t, 4), "there is no consumer nobody")
		require.Contains(t, db.run(t, "forget", "--yes", "--consumer", stock, "--from", "2020-01-01", "--to", "2020-01-02").fails(t, 4), "processed nothing in that time")
		require.Equal(t, 8, db.count(t, "inbox_messages"))
		require.Equal(t, forgetResult{Action: "forget", Consumer: stock, Matched: 2, Changed: 2}, decode[forgetResult](t, forget("--consumer", stock, "--yes", "-o", "json")))
		require.Equal(t, 6, db.count(t, "inbox_messages"))
		require.Equal(t, 1, db.count(t, "inbox_messages WHERE "+db.idIs("evt-2")))
	})
}

func TestClean(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		const month = 30 * 24 * time.Hour
		for _, consumer := range []string{stock, mail} {
			db.process(t, consumer, messages(5)...)
			db.age(t, consumer, 2*month, "message_id <> "+string(db.schema.AppendBytes(nil, "evt-1")))
		}
		db.receive(t, stock, message.NewMessage("evt-9", []byte("lamp")))
		db.exec(t, "UPDATE inbox_pending SET state = 4, due_at = 0, message_id = "+string(db.schema.AppendBytes(nil, "evt-2")))

		require.Contains(t, db.run(t, "clean", "--older-than", "30d").fails(t, 5), "--yes")
		require.Contains(t, db.run(t, "clean", "--older-than", "30d", "--consumer", "nobody", "--yes").fails(t, 4), "there is no consumer nobody")
		require.Equal(t, "CONSUMER       EXAMINED  TO REMOVE\nreserve-stock  5         3\nsend-mail      5         4\n7 identities to remove.\n",
			db.run(t, "clean", "--older-than", "30d", "--dry-run").succeeds(t))
		require.Equal(t, "CONSUMER       EXAMINED  REMOVED\nreserve-stock  5         0\nsend-mail      5         0\n0 identities removed.\n",
			db.run(t, "clean", "--older-than", "90d", "--yes").succeeds(t))
		require.Equal(t, 10, db.count(t, "inbox_messages"))

		report := decode[cleanReport](t, db.run(t, "clean", "--older-than", "720h", "--consumer", mail, "--yes", "-o", "json", "--dead-payloads", "1h"))
		require.Equal(t, cleanReport{OlderThanSeconds: 2592000, Examined: 5, Removed: 4, Payloads: 1, Consumers: []cleanConsumerReport{{mail, nil, 5, 4}}}, report)
		require.Equal(t, 6, db.count(t, "inbox_messages"))
		require.Equal(t, 1, db.count(t, "inbox_pending WHERE state = 5"))
		require.Contains(t, db.run(t, "redrive", "--yes", "1").fails(t, 4), "not dead")
		require.Contains(t, db.run(t, "show", "1").succeeds(t), "stripped")
		db.run(t, "clean", "--older-than", "30d", "--yes", "--batch", "1", "--pause", "1ms").succeeds(t)
		require.Equal(t, 3, db.count(t, "inbox_messages"), "evt-1 of both, and evt-2 of a dead message")
		require.Equal(t, "1 message discarded.\n", db.run(t, "discard", "--yes", "--consumer", stock, "--all").succeeds(t))
	})
}

func TestTerminal_clean(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		const old = 6000 // more than a window
		db.process(t, stock, messages(1)...)
		db.fill(t, old)
		args := []string{"clean", "--older-than", "30d", "--consumer", stock, "--pause", "1ms"}

		term := inTerminal(t, []string{"INBOX_DSN=" + db.dsn}, args...)
		screen := term.await(t, "Type yes to remove 6000 identities:")
		require.Contains(t, screen, "look")
		term.keys(t, "no", "Enter")
		term.ends(t, 5)
		require.Equal(t, old+1, db.count(t, "inbox_messages"))

		term = inTerminal(t, []string{"INBOX_DSN=" + db.dsn}, args...)
		term.await(t, "Type yes to remove 6000 identities:")
		term.keys(t, "yes", "Enter")
		screen, raw := term.ends(t, 0)
		require.Contains(t, screen, "6000 identities removed.\n")
		require.Contains(t, raw, "(0/6001)")
		require.Contains(t, raw, "(6001/6001)")
		require.Equal(t, 1, db.count(t, "inbox_messages"))
	})
}

// A signal ends a sweep, and a forgetting of a range, between two transactions.
func TestTerminal_clean_interrupted(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.process(t, stock, messages(1)...)
		db.fill(t, 3000)
		term := inTerminal(t, []string{"INBOX_DSN=" + db.dsn}, "clean", "--yes", "--older-than", "30d", "--batch", "100", "--pause", "300ms")
		require.Eventually(t, func() bool { return db.count(t, "inbox_messages") < 3001 }, 30*time.Second, 10*time.Millisecond)
		term.keys(t, "C-c")
		screen, _ := term.ends(t, 130)
		left := db.count(t, "inbox_messages")
		require.Greater(t, left, 1)
		require.Contains(t, screen, fmt.Sprintf("inboxctl: interrupted: %d identities and 0 payloads are removed", 3001-left))
	})
}

// fill adds n identities of reserve-stock that are two months old.
func (db testDatabase) fill(t *testing.T, n int) {
	t.Helper()
	identities, err := retention.NewIdentities(db.pool, db.schema, nil)
	require.NoError(t, err)
	first, err := identities.List(t.Context(), retention.Filter{Consumer: stock, Limit: 1})
	require.NoError(t, err)
	require.Len(t, first, 1)
	for from := 0; from < n; from += 500 { // SQLite takes no longer UNION
		statement := []byte("INSERT INTO inbox_messages (consumer, producer, message_id, processed_at) SELECT consumer, ")
		statement = db.schema.AppendBytes(statement, "old")
		statement = append(statement, ", n.id, "+fmt.Sprintf(db.older, 60*24*60)+" FROM inbox_messages, ("...)
		for i := range 500 {
			if i > 0 {
				statement = append(statement, " UNION ALL "...)
			}
			statement = append(statement, "SELECT "...)
			statement = db.schema.AppendBytes(statement, fmt.Sprintf("%06d", from+i))
			statement = append(statement, " AS id"...)
		}
		statement = append(statement, ") n WHERE consumer = "...)
		statement = db.schema.AppendBytes(statement, stock)
		statement = append(statement, " AND "+db.idIs("evt-1")...)
		db.exec(t, string(statement))
	}
}
