package deferred

import (
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
)

// counts returns consumer, topic, state, number of messages and age of the oldest in microseconds.
func (s statements) counts() wsql.Query {
	return s.text(256).add("SELECT consumer, topic, state, COUNT(*), ", s.Now(), " - MIN(received_at) FROM ", s.tableName(),
		" GROUP BY consumer, topic, state ORDER BY consumer, topic, state").query()
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

// lockDead locks those of the messages that are dead, up to a state: the stripped ones too, or not. It waits for a transaction that holds one of them.
func (s statements) lockDead(numbers []int64, upTo State) wsql.Query {
	t := s.text(256).add("SELECT seq, consumer, topic, ordering_key FROM ", s.tableName(), " WHERE state >= ", StateDead, " AND state <= ", upTo, " AND seq IN ").
		list(numbers).add(" ORDER BY seq")
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
