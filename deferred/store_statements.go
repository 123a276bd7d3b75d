package deferred

import (
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
)

// counts returns consumer, topic, state, number of messages, age of the oldest, and for how long the first of them is due, in microseconds.
func (s statements) counts() wsql.Query {
	return s.text(256).add("SELECT consumer, topic, state, COUNT(*), ", s.Now(), " - MIN(received_at), ", s.Now(), " - MIN(due_at) FROM ", s.tableName(),
		" GROUP BY consumer, topic, state ORDER BY consumer, topic, state").query()
}

// leap returns for each group the next one in its state: its place in groups, whether its consumer is another one, consumer and topic. If both a next topic of
// the consumer and a next consumer are returned, the topic comes first.
//
// Each part reads one entry of the index. It is no recursive query, because InnoDB reads the whole state where a bound comes from another row. It has the
// order of the whole index, because a planner could otherwise take another one that begins with the consumer, and filter by state; see also SortAvoider.
func (s statements) leap(groups []group) wsql.Query {
	t := s.text(1024)
	next := func(place, otherConsumer int, state State) *text {
		return t.add("SELECT ", place, " AS place, ", otherConsumer, " AS other_consumer, consumer, topic FROM (SELECT consumer, topic FROM ",
			s.tableName(), s.DueIndex(), " WHERE state = ", state)
	}
	for place, g := range groups {
		if place > 0 {
			t.add(" UNION ALL ")
		}
		if g.consumer == "" { // the beginning of the state: no consumer has that name
			next(place, 1, g.state).add(" ORDER BY consumer, topic, due_at, seq LIMIT 1) g")
			continue
		}
		next(place, 0, g.state).add(" AND consumer = ", literal(g.consumer), " AND topic > ", literal(g.topic), " ORDER BY topic, due_at, seq LIMIT 1) g UNION ALL ")
		next(place, 1, g.state).add(" AND consumer > ", literal(g.consumer), " ORDER BY consumer, topic, due_at, seq LIMIT 1) g")
	}
	return t.query()
}

// countUpTo returns for each group its place in groups, the number of its messages, at most limit, the age of the first received of these, and for how long the
// first is due, in microseconds. All that it reads of the others than the first is in the index.
func (s statements) countUpTo(groups []group, limit int) wsql.Query {
	t := s.text(1024+512*len(groups)).add("SELECT n.place, n.total, ", s.Now(), " - (SELECT f.received_at FROM ", s.tableName(), " f WHERE f.seq = n.oldest), ",
		s.Now(), " - n.due FROM (")
	for place, g := range groups {
		if place > 0 {
			t.add(" UNION ALL ")
		}
		t.add("SELECT ", place, " AS place, COUNT(*) AS total, MIN(b.seq) AS oldest, MIN(b.due_at) AS due FROM (SELECT seq, due_at FROM ", s.tableName(), s.DueIndex(), " WHERE ").
			of(g.consumer, g.topic, g.state).add(" ORDER BY due_at, seq LIMIT ", limit, ") b")
	}
	return t.add(") n WHERE n.total > 0").query()
}

func (s statements) list(filter Filter) wsql.Query {
	t := s.text(512).add("SELECT seq, consumer, topic, producer, message_id, uuid, ordering_key, state, attempts, received_at, due_at,",
		" OCTET_LENGTH(payload) + OCTET_LENGTH(metadata), reason, last_error FROM ", s.tableName(), " WHERE seq > ", filter.After)
	if filter.Consumer != "" {
		t.add(" AND consumer = ", literal(filter.Consumer))
	}
	if filter.Topic != "" {
		t.add(" AND topic = ", literal(filter.Topic))
	}
	for n, state := range filter.States {
		if n == 0 {
			t.add(" AND state IN (", state)
		} else {
			t.add(", ", state)
		}
	}
	if len(filter.States) > 0 {
		t.add(")")
	}
	return t.add(" ORDER BY seq LIMIT ", filter.Limit).query()
}

func (s statements) load(number int64) wsql.Query {
	return s.text(128).add("SELECT message_id, uuid, metadata, payload, state FROM ", s.tableName(), " WHERE seq = ", number).query()
}

// lockDead locks those of the messages that are dead, the stripped ones too. It waits for a transaction that holds one of them.
func (s statements) lockDead(numbers []int64) wsql.Query {
	t := s.text(256).add("SELECT seq, state, consumer, topic, ordering_key FROM ", s.tableName(), " WHERE state >= ", StateDead, " AND seq IN ").list(numbers).add(" ORDER BY seq")
	if s.SkipLocked() != "" {
		t.add(" FOR UPDATE")
	}
	return t.query()
}

func (s statements) redrive(numbers []int64) wsql.Query {
	return s.text(256).add("UPDATE ", s.tableName(), " SET state = ", StatePending, ", attempts = 0, reason = ", literal(""), ", due_at = ", s.Now(),
		" WHERE state = ", StateDead, " AND seq IN ").list(numbers).query()
}

func (s statements) discard(numbers []int64) wsql.Query {
	return s.text(256).add("DELETE FROM ", s.tableName(), " WHERE state >= ", StateDead, " AND seq IN ").list(numbers).query()
}

// longDead appends the condition for messages that died longer ago than age. The index of states has them.
func (t *text) longDead(age time.Duration) *text {
	return t.add(" WHERE state = ", StateDead, " AND due_at < ", t.dialect.Now(), " - ", age)
}

func (s statements) countLongDead(age time.Duration) wsql.Query {
	return s.text(256).add("SELECT COUNT(*) FROM ", s.tableName()).longDead(age).query()
}

func (s statements) listLongDead(age time.Duration, limit int) wsql.Query {
	return s.text(256).add("SELECT seq FROM ", s.tableName()).longDead(age).add(" LIMIT ", limit).query()
}

// strip removes payload and metadata of messages that still are dead for long: one may have been redriven, and have died again, meanwhile.
func (s statements) strip(numbers []int64, age time.Duration) wsql.Query {
	return s.text(256).add("UPDATE ", s.tableName(), " SET state = ", StateStripped, ", payload = ", literal(""), ", metadata = ", literal("")).
		longDead(age).add(" AND seq IN ").list(numbers).query()
}
