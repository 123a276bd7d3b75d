package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/deferred"
)

// dead returns the numbers of the dead messages of a consumer.
func (db testDatabase) dead(t *testing.T, consumer string) (numbers []string) {
	t.Helper()
	for _, m := range decode[messageList](t, db.run(t, "list", "-o", "json", "--state", "dead", "--consumer", consumer, "--limit", "5000")).Messages {
		numbers = append(numbers, strconv.FormatInt(m.Number, 10))
	}
	return numbers
}

func TestRedrive_and_discard_by_number(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.receive(t, stock, messages(4)...)
		db.kill(t, stock, 4)
		db.receive(t, mail, messages(1)...)
		dead := db.dead(t, stock)
		const isDead, isPending = "inbox_pending WHERE state = 4", "inbox_pending WHERE state = 0 AND attempts = 0"

		// Nobody can be asked.
		require.Contains(t, db.run(t, "redrive", dead[0]).fails(t, 5), "--yes")
		require.Contains(t, db.run(t, "discard", dead[0]).fails(t, 5), "--yes")
		require.Equal(t, 4, db.count(t, isDead))

		r := db.run(t, "discard", "--dry-run", dead[0])
		require.Equal(t, "1 message would be discarded.\n", r.succeeds(t))
		require.Contains(t, r.stderr, "evt-1")
		require.Equal(t, 4, db.count(t, isDead))

		// All or nothing: one of them is not dead.
		require.Contains(t, db.run(t, "redrive", "--yes", dead[0], "5").fails(t, 4), "messages [5] are not dead")
		require.Contains(t, db.run(t, "discard", "--yes", dead[0], "4711").fails(t, 4), "messages [4711] are not dead")
		require.Equal(t, 4, db.count(t, isDead))

		require.Equal(t, "2 messages redriven.\n", db.run(t, "redrive", "--yes", dead[0], dead[1], dead[1]).succeeds(t))
		require.Equal(t, 2, db.count(t, isDead))
		require.Equal(t, 3, db.count(t, isPending))
		require.Equal(t, actResult{Action: "discard", Queue: "pending", Matched: 1, Changed: 1}, decode[actResult](t, db.run(t, "discard", "-y", "-o", "json", dead[2])))
		require.Equal(t, 1, db.count(t, isDead))
		require.Equal(t, 4, db.count(t, "inbox_pending"))
	})
}

func TestRedrive_and_discard_by_filter(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.receive(t, stock, messages(3)...)
		db.receive(t, mail, messages(3)...)
		db.kill(t, stock, 3)
		db.kill(t, mail, 6)
		db.exec(t, "UPDATE inbox_pending SET last_error = 'mailbox full' WHERE seq = 4")

		for _, args := range [][]string{
			{}, {"--all"}, {"--state", "dead"}, {"--consumer", stock}, {"--consumer", stock, "--state", "claimed", "--all"}, {"1", "--all"}, {"1", "--consumer", stock}, {"x"}, {"0"},
		} {
			db.run(t, append([]string{"discard", "--yes"}, args...)...).fails(t, 2)
		}
		require.Contains(t, db.run(t, "redrive", "--yes", "--consumer", "nobody", "--all").fails(t, 4), "there is no consumer nobody")
		require.Contains(t, db.run(t, "redrive", "--yes", "--reason", "nothing").fails(t, 4), "no dead message")
		require.Equal(t, 6, db.count(t, "inbox_pending WHERE state = 4"))

		require.Equal(t, "1 message redriven.\n", db.run(t, "redrive", "--yes", "--reason", "mailbox full").succeeds(t))
		require.Equal(t, 1, db.count(t, "inbox_pending WHERE state = 0 AND seq = 4"))
		require.Equal(t, "3 messages discarded.\n", db.run(t, "discard", "--yes", "--consumer", stock, "--all").succeeds(t))
		require.Equal(t, "2 messages redriven.\n", db.run(t, "redrive", "--yes", "--topic", orders, "--consumer", mail).succeeds(t))
		require.Equal(t, 3, db.count(t, "inbox_pending WHERE state = 0"))
		require.Equal(t, 3, db.count(t, "inbox_pending"))
		db.run(t, "redrive", "--yes", "--topic", orders).fails(t, 4)
	})
}

// A message that retention strips between the list and its redrive was asked for again and again, without an end.
func TestRedrive_skips_what_was_stripped_meanwhile(t *testing.T) {
	var calls [][]int64
	w := work{app: &app{}, what: act{run: func(_ *deferred.Store, _ context.Context, numbers ...int64) error {
		calls = append(calls, slices.Clone(numbers))
		require.LessOrEqual(t, len(calls), 2)
		if len(calls) == 1 {
			return fmt.Errorf("redrive: %w", &deferred.NotDeadError{Numbers: []int64{1}, Stripped: []int64{2}})
		}
		return nil
	}}}
	require.NoError(t, w.batch(t.Context(), nil, []deferred.StoredMessage{{Number: 1}, {Number: 2}, {Number: 3}}))
	require.Equal(t, [][]int64{{1, 2, 3}, {3}}, calls)
	require.Equal(t, actResult{Changed: 1, Skipped: 2}, w.result)
}

// More than a page, in several batches.
func TestRedrive_many(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.receive(t, stock, messages(2*pageSize+1)...)
		db.exec(t, "UPDATE inbox_pending SET state = 4, reason = 'attempts exhausted'")
		require.Equal(t, actResult{Action: "redrive", Queue: "pending", Matched: 2*pageSize + 1, Changed: 2*pageSize + 1},
			decode[actResult](t, db.run(t, "redrive", "--yes", "-o", "json", "--consumer", stock, "--all")))
		require.Equal(t, 2*pageSize+1, db.count(t, "inbox_pending WHERE state = 0"))
	})
}
