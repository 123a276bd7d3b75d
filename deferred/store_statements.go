package deferred

import wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

// counts returns consumer, topic, state, number of messages, age of the oldest, and for how long the first of them is due, in microseconds.
func (s statements) counts() wsql.Query {
	return s.text(256).add("SELECT consumer, topic, state, COUNT(*), ", s.Now(), " - MIN(received_at), ", s.Now(), " - MIN(due_at) FROM ", s.tableName(),
		" GROUP BY consumer, topic, state ORDER BY consumer, topic, state").query()
}

// groups returns up to most + 1 different consumers, topics and states, in no order. It goes through the index in leaps, one for each: where engines
// do so for a DISTINCT at all, they need good statistics.
func (s statements) groups(most int) wsql.Query {
	open, separator, end := s.RowList()
	t := s.text(2048).add("WITH RECURSIVE states (state) AS (", open, StatePending)
	for _, state := range []State{StateSuspect, StateClaimed, StateWaiting, StateDead} {
		t.add(separator, state)
	}
	t.add(end, "), consumers (state, consumer, n) AS (SELECT g.state, ").leap(s, "consumer", "").
		add(", 1 FROM states g UNION ALL SELECT g.state, ").leap(s, "consumer", " AND p.consumer > g.consumer").
		add(", g.n + 1 FROM consumers g WHERE g.consumer IS NOT NULL AND g.n <= ", most)
	t.add("), topics (state, consumer, topic, n) AS (SELECT g.state, g.consumer, ").leap(s, "topic", " AND p.consumer = g.consumer").
		add(", 1 FROM consumers g WHERE g.consumer IS NOT NULL UNION ALL SELECT g.state, g.consumer, ").
		leap(s, "topic", " AND p.consumer = g.consumer AND p.topic > g.topic").
		add(", g.n + 1 FROM topics g WHERE g.topic IS NOT NULL AND g.n <= ", most)
	return t.add(") SELECT consumer, topic, state FROM topics WHERE topic IS NOT NULL LIMIT ", most+1).query()
}

// leap appends a subquery for the first value of a column in the state of g.
func (t *text) leap(s statements, column, condition string) *text {
	return t.add("(SELECT p.", column, " FROM ", s.tableName(), " p", s.DueIndex(), " WHERE p.state = g.state", condition, " ORDER BY p.", column, " LIMIT 1)")
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
	return s.text(128).add("SELECT message_id, uuid, metadata, payload FROM ", s.tableName(), " WHERE seq = ", number).query()
}

// lockDead locks those of the messages that are dead. It waits for a transaction that holds one of them.
func (s statements) lockDead(numbers []int64) wsql.Query {
	t := s.text(256).add("SELECT seq, consumer, topic, ordering_key FROM ", s.tableName(), " WHERE state = ", StateDead, " AND seq IN ").list(numbers).add(" ORDER BY seq")
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
	return s.text(256).add("DELETE FROM ", s.tableName(), " WHERE state = ", StateDead, " AND seq IN ").list(numbers).query()
}
