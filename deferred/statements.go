package deferred

import (
	"slices"
	"strconv"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
)

// State is where a message stands in a queue. A processed message is in no queue any more: its identity is in the table of identities.
type State int

// The states. Their numbers are stored.
const (
	// StatePending: waits for its time, its next attempt or a free worker.
	StatePending State = 0

	// StateSuspect: pending too, but the worker that claimed it last disappeared while it held it. Such a message is claimed alone.
	StateSuspect State = 1

	// StateClaimed: with a worker, whose lease it is.
	StateClaimed State = 2

	// StateWaiting: pending too, but an earlier message with the same ordering key is not processed yet.
	StateWaiting State = 3

	// StateDead: not tried again until an operator redrives or discards it.
	StateDead State = 4

	// StateStripped: dead too, but payload and metadata are removed, so that it can only be discarded.
	StateStripped State = 5
)

// String returns the name of the state.
func (s State) String() string {
	switch s {
	case StatePending:
		return "pending"
	case StateSuspect:
		return "suspect"
	case StateClaimed:
		return "claimed"
	case StateWaiting:
		return "waiting"
	case StateDead:
		return "dead"
	case StateStripped:
		return "stripped"
	}
	return "state " + strconv.Itoa(int(s))
}

// storedMessage is a row of a queue as a Receiver writes it.
type storedMessage struct {
	inbox.Row
	topic       string
	orderingKey string
	uuid        string // '' if it is the id, else '=' and the UUID
	metadata    string
	payload     string
	delay       time.Duration
}

// statements builds the SQL of one queue: text without parameters, so that each statement is one round trip with every driver and DSN
// and needs no session behind a pooler. All values in it are numbers or literals of bytes, but for complete, which an Inbox may want with parameters.
type statements struct {
	Dialect
	queue Queue
}

// text is a statement that grows.
type text struct {
	dialect    Dialect
	sql        []byte
	parameters inbox.ParameterBinder // nil: values are literals
	args       []any
}

func (s statements) text(size int) *text {
	return &text{dialect: s.Dialect, sql: make([]byte, 0, size)}
}

// add appends its parts: SQL as string, numbers, and bytes as literals.
func (t *text) add(parts ...any) *text {
	for _, part := range parts {
		switch part := part.(type) {
		case string:
			t.sql = append(t.sql, part...)
		case literal:
			if t.parameters != nil {
				t.parameter([]byte(part))
				continue
			}
			t.sql = t.dialect.AppendBytes(t.sql, string(part))
		case int:
			t.sql = strconv.AppendInt(t.sql, int64(part), 10)
		case int64:
			if t.parameters != nil {
				t.parameter(part)
				continue
			}
			t.sql = strconv.AppendInt(t.sql, part, 10)
		case State:
			t.sql = strconv.AppendInt(t.sql, int64(part), 10)
		case time.Duration:
			t.sql = strconv.AppendInt(t.sql, part.Microseconds(), 10)
		}
	}
	return t
}

func (t *text) parameter(value any) {
	t.args = append(t.args, value)
	t.sql = append(t.sql, t.parameters.Placeholder(len(t.args))...)
}

// literal is a value of bytes.
type literal string

// list appends the numbers of seqs in parentheses.
func (t *text) list(seqs []int64) *text {
	for n, seq := range seqs {
		separator := ", "
		if n == 0 {
			separator = "("
		}
		t.add(separator, seq)
	}
	return t.add(")")
}

func (t *text) query() wsql.Query { return wsql.Query{Query: string(t.sql), Args: t.args} }

func (s statements) tableName() string { return s.QueueTable(s.queue) }

// rows appends WITH b AS and a list of rows, of which each has a number n and an identity.
func (t *text) rows(messages []storedMessage, moreNames string, more func(m storedMessage)) *text {
	open, separator, end := t.dialect.RowList()
	t.add("WITH b (n, consumer, topic, producer, message_id", moreNames, ") AS (", open)
	for n, m := range messages {
		if n > 0 {
			t.add(separator)
		}
		t.add(n, ", ", literal(m.Consumer), ", ", literal(m.topic), ", ", literal(m.Producer), ", ", literal(m.ID))
		more(m)
	}
	return t.add(end, ") ")
}

// processed appends a subquery for a column of the row in the table of identities. It is a scalar one, because a join would make some
// engines read the whole table.
func (t *text) processed(table, column string) *text {
	return t.add("(SELECT a.", column, " FROM ", table, " a WHERE a.consumer = b.consumer AND a.producer = b.producer AND a.message_id = b.message_id)")
}

// insert stores messages. A row is left out if its key is in the queue, or its identity in the table of identities.
func (s statements) insert(messages []storedMessage, reception int64) wsql.Query {
	size := 1024
	for _, m := range messages {
		size += 512 + 2*(len(m.payload)+len(m.metadata)+len(m.ID)+len(m.Producer)+len(m.Consumer)+len(m.topic)+len(m.Fingerprint))
	}
	t := s.text(size).add("INSERT INTO ", s.tableName(),
		" (consumer, topic, producer, message_id, fingerprint, ordering_key, uuid, metadata, payload, reception, received_at, due_at) ")
	t.rows(messages, ", fingerprint, ordering_key, uuid, metadata, payload, delay", func(m storedMessage) {
		t.add(", ", literal(m.Fingerprint), ", ", literal(m.orderingKey), ", ", literal(m.uuid), ", ", literal(m.metadata), ", ", literal(m.payload), ", ", m.delay)
	})
	t.add("SELECT b.consumer, b.topic, b.producer, b.message_id, b.fingerprint, b.ordering_key, b.uuid, b.metadata, b.payload, ",
		reception, ", ", s.Now(), ", ", s.Now(), " + b.delay FROM b WHERE ")
	if s.queue == Pending {
		return t.processed(s.Table(), "consumer").add(" IS NULL ORDER BY b.n", s.IgnoreDuplicates()).query()
	}
	return t.add("1 = 1 ORDER BY b.n").query()
}

// outcomes reads what became of messages: for each its number, the number of the insert that stored it and its fingerprint in the queue, NULL if it is
// not there, and its fingerprint in the table of identities, NULL if it is not processed.
func (s statements) outcomes(messages []storedMessage) wsql.Query {
	t := s.text(1024)
	t.rows(messages, "", func(storedMessage) {}).add("SELECT b.n, ").inQueue(s.tableName(), "reception").add(", ").
		inQueue(s.tableName(), "fingerprint").add(", ").processed(s.Table(), "fingerprint")
	return t.add(" FROM b").query()
}

// inQueue is like processed for the queue.
func (t *text) inQueue(table, column string) *text {
	return t.add("(SELECT p.", column, " FROM ", table,
		" p WHERE p.consumer = b.consumer AND p.topic = b.topic AND p.producer = b.producer AND p.message_id = b.message_id)")
}

// of appends the condition for the messages of a consumer and topic in a state.
func (t *text) of(consumer, topic string, state State) *text {
	return t.add("consumer = ", literal(consumer), " AND topic = ", literal(topic), " AND state = ", state)
}

// due locks up to limit messages of a state whose time has come, the earliest first, and returns all that a worker needs of them.
func (s statements) due(consumer, topic string, state State, limit int) wsql.Query {
	return s.text(512).add("SELECT seq, producer, message_id, fingerprint, ordering_key, uuid, metadata, payload, attempts FROM ", s.tableName(), s.DueIndex(), " WHERE ").
		of(consumer, topic, state).add(" AND due_at <= ", s.Now(), " ORDER BY due_at, seq LIMIT ", limit, s.SkipLocked()).query()
}

// expired locks up to limit messages of a state whose time has come. It returns number, attempts and ordering key.
func (s statements) expired(consumer, topic string, state State, limit int) wsql.Query {
	return s.text(512).add("SELECT seq, attempts, ordering_key FROM ", s.tableName(), s.DueIndex(), " WHERE ").
		of(consumer, topic, state).add(" AND due_at <= ", s.Now(), " ORDER BY due_at, seq LIMIT ", limit, s.SkipLocked()).query()
}

// hasDue yields a row if a message of the state is due.
func (s statements) hasDue(consumer, topic string, state State) wsql.Query {
	return s.text(256).add("SELECT 1 FROM ", s.tableName(), " WHERE ").of(consumer, topic, state).add(" AND due_at <= ", s.Now(), " LIMIT 1").query()
}

// behind returns those of the locked messages that an earlier message with the same ordering key, or a claimed one, stands before.
// It must be a statement of its own, after the lock, because only then it sees what was committed before the lock.
func (s statements) behind(seqs []int64, deadLetsGo bool) wsql.Query {
	t := s.text(768).add("SELECT c.seq FROM ", s.tableName(), " c WHERE c.ordering_key <> ", literal(""), " AND c.seq IN ").list(seqs)
	t.add(" AND (EXISTS (SELECT 1 FROM ", s.tableName(), " e WHERE e.consumer = c.consumer AND e.topic = c.topic AND e.ordering_key = c.ordering_key AND e.ordering_key <> ", literal(""), " AND e.seq < c.seq")
	if deadLetsGo {
		t.add(" AND e.state < ", StateDead)
	}
	return t.add(") OR EXISTS (SELECT 1 FROM ", s.tableName(), " e WHERE e.consumer = c.consumer AND e.topic = c.topic AND e.ordering_key = c.ordering_key AND e.ordering_key <> ", literal(""),
		" AND e.seq <> c.seq AND e.state = ", StateClaimed, "))").query()
}

// claim makes locked messages those of a worker. Like move and bury it has no text for no messages.
func (s statements) claim(seqs []int64, token int64, lease time.Duration) wsql.Query {
	if len(seqs) == 0 {
		return wsql.Query{}
	}
	return s.text(256).add("UPDATE ", s.tableName(), " SET state = ", StateClaimed, ", token = ", token, ", attempts = attempts + 1, due_at = ", s.Now(), " + ", lease,
		" WHERE seq IN ").list(seqs).query()
}

// move puts locked messages into another state, to be looked at after a while.
func (s statements) move(seqs []int64, state State, after time.Duration) wsql.Query {
	if len(seqs) == 0 {
		return wsql.Query{}
	}
	return s.text(256).add("UPDATE ", s.tableName(), " SET state = ", state, ", token = 0, due_at = ", s.Now(), " + ", after, " WHERE seq IN ").list(seqs).query()
}

// bury makes locked messages dead.
func (s statements) bury(seqs []int64, reason string) wsql.Query {
	if len(seqs) == 0 {
		return wsql.Query{}
	}
	return s.text(256).add("UPDATE ", s.tableName(), " SET state = ", StateDead, ", token = 0, due_at = ", s.Now(), ", reason = ", literal(reason),
		" WHERE seq IN ").list(seqs).query()
}

// undo gives back the messages of a claim whose COMMIT got no answer.
func (s statements) undo(consumer, topic string, token int64) wsql.Query {
	return s.text(256).add("UPDATE ", s.tableName(), " SET state = ", StatePending, ", attempts = attempts - 1, token = 0, due_at = ", s.Now(), " WHERE ").
		of(consumer, topic, StateClaimed).add(" AND token = ", token).query()
}

// fence appends the condition that the message is still in this claim: a row that is not claimed has no token. There is no condition on the state,
// because a planner may take few claimed rows for none, and then reads the index of states, with all entries of claims that ended, for each message.
func (t *text) fence(seq, token int64) *text {
	return t.add(" WHERE seq = ", seq, " AND token = ", token)
}

// renew makes leases longer. It affects a row for each claim that is not lost.
func (s statements) renew(claims []*claim, lease time.Duration) wsql.Query {
	t := s.text(512).add("UPDATE ", s.tableName(), " SET due_at = ", s.Now(), " + ", lease, " WHERE ")
	return t.pairs(claims).query()
}

// held returns the numbers and tokens of the claims that are not lost.
func (s statements) held(claims []*claim) wsql.Query {
	return s.text(512).add("SELECT seq, token FROM ", s.tableName(), " WHERE ").pairs(claims).query()
}

// pairs appends a condition that uses the primary key. A number with the token of another claim is excluded by the caller's count.
func (t *text) pairs(claims []*claim) *text {
	seqs, tokens := make([]int64, 0, len(claims)), make([]int64, 0, len(claims))
	for _, c := range claims {
		seqs, tokens = append(seqs, c.seq), append(tokens, c.token)
	}
	slices.Sort(tokens)
	return t.add("seq IN ").list(seqs).add(" AND token IN ").list(slices.Compact(tokens))
}

// complete removes a claimed message if the table of identities has its identity, with this token unless that is zero.
func (s statements) complete(c *claim, schema inbox.Schema, row inbox.Row) wsql.Query {
	t := s.text(512)
	t.parameters, _ = schema.(inbox.ParameterBinder)
	t.add("DELETE FROM ", s.tableName()).fence(c.seq, c.token).add(" AND EXISTS (")
	if checker, ok := schema.(inbox.TransactionChecker); ok && row.Token != 0 {
		query := checker.TransactionCheckQuery(row)
		t.add(query.Query, ")")
		return wsql.Query{Query: string(t.sql), Args: query.Args}
	}
	return t.add("SELECT 1 FROM ", schema.Table(), " WHERE consumer = ", literal(row.Consumer), " AND producer = ", literal(row.Producer),
		" AND message_id = ", literal(row.ID), ")").query()
}

// remove removes a claimed message that no Inbox has processed.
func (s statements) remove(c *claim) wsql.Query {
	return s.text(128).add("DELETE FROM ", s.tableName()).fence(c.seq, c.token).query()
}

// release gives a claimed message back. Attempts is -1 if this one does not count.
func (s statements) release(c *claim, attempts int, after time.Duration, lastError string) wsql.Query {
	t := s.text(512).add("UPDATE ", s.tableName(), " SET state = ", StatePending, ", token = 0, due_at = ", s.Now(), " + ", after, ", attempts = attempts + ", attempts)
	if lastError != "" {
		t.add(", last_error = ", literal(lastError))
	}
	return t.fence(c.seq, c.token).query()
}

// kill makes a claimed message dead.
func (s statements) kill(c *claim, reason, lastError string) wsql.Query {
	return s.text(512).add("UPDATE ", s.tableName(), " SET state = ", StateDead, ", token = 0, due_at = ", s.Now(), ", reason = ", literal(reason),
		", last_error = ", literal(lastError)).fence(c.seq, c.token).query()
}

// first returns the number of the first message of an ordering key that is not processed, or no row or NULL.
func (s statements) first(consumer, topic, orderingKey string, deadLetsGo bool) wsql.Query {
	t := s.text(512).add("SELECT MIN(seq) FROM ", s.tableName(), " WHERE consumer = ", literal(consumer), " AND topic = ", literal(topic),
		" AND ordering_key = ", literal(orderingKey), " AND ordering_key <> ", literal(""))
	if deadLetsGo {
		t.add(" AND state < ", StateDead)
	}
	return t.query()
}

// promote makes a message available if it has been waiting for its ordering key. It waits for a claim that is just finding out that the message
// stands behind another.
func (s statements) promote(seq int64) wsql.Query {
	return s.text(256).add("UPDATE ", s.tableName(), " SET due_at = CASE WHEN state = ", StateWaiting, " THEN ", s.Now(), " ELSE due_at END, state = ", StatePending,
		" WHERE seq = ", seq, " AND state IN (", StatePending, ", ", StateWaiting, ")").query()
}
