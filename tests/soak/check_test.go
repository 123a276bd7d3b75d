package soak

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
)

// result is what a soak leaves in the database and in the broker.
type result struct {
	Lost, Doubled int // messages without an effect, effects too many

	Effects, Identities, Outgoing int
	DistinctOutgoing              int
	Counted, WrongCounters        int

	Poisoned, LeftInQueue int
	UnprovenAcks          int
}

// check looks at everything after all has ended.
func (r *run) check(more int) {
	counted, got := r.counted(), r.result()
	r.Logf("%s in %.0f s: %d messages, %d lost, %d doubled; %d copies published; %d kills, %d restarts (%d crashes, %d stops). "+
		"The consumers counted: %d deliveries, %d marked as redelivered, %d acks, %d nacks, %d processed, %d duplicates recognised, "+
		"%d conflicts retried, %d uncertain commits, of these %d resolved by the same delivery, the others by redeliveries. "+
		"What a consumer counted just before it was killed is missing, so these are lower bounds.",
		r.database.name, time.Since(r.began).Seconds(), r.messages, got.Lost, got.Doubled, r.messages*copiesOfEach+more,
		r.killed, r.crashes+r.stops, r.crashes, r.stops,
		counted.Deliveries, counted.Redelivered, counted.Acks, counted.Nacks, counted.Processed, counted.Duplicates,
		counted.Conflicts, counted.Uncertain, counted.Resolved)

	require.Equal(r, result{
		Effects:          r.messages,
		Identities:       r.messages,
		Outgoing:         r.messages,
		DistinctOutgoing: r.messages,
		Counted:          countersOfOrder * r.messages,
	}, got, "unproven: %s; poisoned: %s", counted.Example, r.broker.poisoned())

	// The soak is worth nothing unless these happened.
	require.GreaterOrEqual(r, r.killed, r.kills, "kills")
	require.GreaterOrEqual(r, r.crashes+r.stops, r.restarts, "restarts")
	require.Greater(r, counted.Redelivered, 0, "redeliveries")
	require.Greater(r, counted.Uncertain, 0, "uncertain commits")
	require.GreaterOrEqual(r, counted.Duplicates, r.messages, "duplicates recognised")
}

func (r *run) result() (got result) {
	outbox := r.database.outbox.MessagesTable(outgoing)
	got = result{
		Effects:          r.query("SELECT COUNT(*) FROM effects"),
		Identities:       r.query("SELECT COUNT(*) FROM inbox_messages"),
		Outgoing:         r.query("SELECT COUNT(*) FROM " + outbox),
		DistinctOutgoing: r.query("SELECT COUNT(DISTINCT uuid) FROM " + outbox),
		Counted:          r.query("SELECT SUM(n) FROM counters"),
		WrongCounters:    r.wrongCounters(),
		LeftInQueue:      r.ready(),
		UnprovenAcks:     r.counted().Unproven,
	}
	distinct := r.query("SELECT COUNT(DISTINCT message_id) FROM effects")
	got.Lost, got.Doubled = r.messages-distinct, got.Effects-distinct

	var err error
	got.Poisoned, err = r.broker.ready(r.config.Poison)
	require.NoError(r, err)
	return got
}

func (r *run) wrongCounters() (wrong int) {
	want := make([]int, counterCount)
	for number := range r.messages {
		for _, counter := range countersOf(number) {
			want[counter]++
		}
	}
	for counter, n := range want {
		if r.query(fmt.Sprintf("SELECT n FROM counters WHERE id = %d", counter)) != n {
			wrong++
		}
	}
	return wrong
}

func (r *run) query(query string) (n int) {
	require.NoError(r, r.db.QueryRow(query).Scan(&n), query)
	return n
}
