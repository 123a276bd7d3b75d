package deferred_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// planner tells what an engine makes of a statement.
type planner struct {
	database string
	uuid     string // an expression for a new id
	key      string // one for an ordering key, for every second row
	analyze  string
	explain  string
	bad      *regexp.Regexp // what no plan may have: whole tables read or sorted
	control  string         // a statement that finds rows by an index and sorts them
}

var planners = []planner{
	{
		"postgres-std", "gen_random_uuid()::text::bytea", "CASE WHEN seq % 2 = 0 THEN (seq % 1000)::text::bytea ELSE ''::bytea END", "ANALYZE",
		"EXPLAIN ", regexp.MustCompile(`Seq Scan on inbox_|Sort Key: [^"]`), "SELECT payload FROM inbox_pending WHERE seq BETWEEN 10 AND 20 ORDER BY payload",
	},
	{
		"mysql", "UUID()", "IF(seq % 2 = 0, seq % 1000, '')", "ANALYZE TABLE inbox_pending, inbox_messages",
		"EXPLAIN FORMAT=TREE ", regexp.MustCompile(`Table scan on (inbox_|p |a |c |e )|Index scan on (inbox_|p |a |c |e )|Sort( row IDs)?: inbox_`), "SELECT payload FROM inbox_pending WHERE seq BETWEEN 10 AND 20 ORDER BY payload",
	},
	{
		"mariadb", "UUID()", "IF(seq % 2 = 0, seq % 1000, '')", "ANALYZE TABLE inbox_pending, inbox_messages",
		"EXPLAIN FORMAT=JSON ", regexp.MustCompile(`(?s)"table_name": "(inbox_\w+|p|a|c|e)",\s+("\w+": \S+\s+)*"access_type": "(ALL|index)"|filesort.{1,90}inbox_`), "SELECT payload FROM inbox_pending WHERE seq BETWEEN 10 AND 20 ORDER BY payload",
	},
	{
		"sqlite", "CAST(hex(randomblob(16)) AS BLOB)", "CASE WHEN seq % 2 = 0 THEN CAST(seq % 1000 AS BLOB) ELSE x'' END", "ANALYZE",
		"EXPLAIN QUERY PLAN ", regexp.MustCompile(`SCAN (inbox_|[pace]\b)|SEARCH inbox_.*\n(.*\n)*.*USE TEMP B-TREE`), "SELECT payload FROM inbox_pending WHERE seq BETWEEN 10 AND 20 ORDER BY payload",
	},
}

// doublings is how many messages are pending, as a power of two. The full size is a million.
func doublings() int {
	if os.Getenv("INBOX_TEST_SOAK") == "full" {
		return 20
	}
	return 16
}

// TestPlans runs receptions, claims and completions over a backlog, and asks the engine for the plans of all their statements: with and without
// statistics, each reads by an index and sorts nothing but its own rows.
func TestPlans(t *testing.T) {
	for _, p := range planners {
		t.Run(p.database, func(t *testing.T) {
			d := databases.All[p.database]
			dsn := d.Create(t)
			pool, closePool, err := d.Open(dsn, 10)
			require.NoError(t, err)
			t.Cleanup(closePool)
			db, err := sql.Open(d.Driver, strings.ReplaceAll(dsn, "readTimeout=10s", "readTimeout=10m")) // of MySQL, for one of half a million rows
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			require.NoError(t, db.Ping())

			recorder := &databases.Recorder{Beginner: pool}
			service := newService(t, recorder, d, deferred.SubscriberConfig{Lease: 3 * time.Second})
			service.receive(t, 1)
			fill(t, db, p)
			service.receive(t, 200)
			service.process(t, 50)
			store, err := deferred.NewStore(recorder, d.Schema, deferred.Pending, nil)
			require.NoError(t, err)
			_, _, err = store.CountUpTo(context.Background(), 1000)
			require.NoError(t, err)

			for _, control := range []string{"SELECT 1 FROM inbox_pending WHERE attempts = 7", "SELECT 1 FROM inbox_messages WHERE fingerprint <> consumer", p.control} {
				require.Regexp(t, p.bad, strings.Join(readPlan(t, db, p.explain+control), "\n"), "the test would not see it")
			}
			statements := service.statements(t, recorder)
			for _, analyzed := range []bool{false, true} {
				if analyzed {
					execSQL(t, db, p.analyze)
				}
				for name, statement := range statements {
					requirePlan(t, db, p, fmt.Sprintf("%s, analyzed: %t", name, analyzed), statement)
				}
			}
		})
	}
}

func execSQL(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.Exec(statement)
	require.NoError(t, err, statement)
}

// fill doubles the backlog again and again.
func fill(t *testing.T, db *sql.DB, p planner) {
	t.Helper()
	start := time.Now()
	for range doublings() {
		execSQL(t, db, "INSERT INTO inbox_pending (consumer, topic, producer, message_id, fingerprint, ordering_key, uuid, metadata, payload, reception, received_at, due_at)"+
			" SELECT consumer, topic, producer, "+p.uuid+", fingerprint, "+p.key+", uuid, metadata, payload, reception, received_at, due_at FROM inbox_pending")
	}
	execSQL(t, db, "INSERT INTO inbox_messages (consumer, producer, message_id) SELECT consumer, producer, "+p.uuid+" FROM inbox_pending")
	t.Logf("%d messages in %s", 1<<doublings(), time.Since(start).Round(time.Second))
}

func requirePlan(t *testing.T, db *sql.DB, p planner, name, statement string) {
	t.Helper()
	plan := strings.Join(readPlan(t, db, p.explain+statement), "\n")
	if bad := p.bad.FindString(plan); bad != "" {
		t.Errorf("%s: %s\n%.2000s\n%.6000s", name, bad, statement, plan)
	}
	if ofClaims.MatchString(name) && strings.Contains(plan, "due") {
		t.Errorf("%s: reads the index of states, with the entries of all claims that ended\n%.2000s\n%.6000s", name, statement, plan)
	}
	if ofCounts.MatchString(name) && !strings.Contains(plan, "const table") && (!strings.Contains(plan, "due") || otherIndex.MatchString(plan)) {
		t.Errorf("%s: does not read the index of states\n%.2000s\n%.6000s", name, statement, plan)
	}
}

// ofCounts are the statements that go through the index of states. MySQL has done so before it explains ("const table").
var ofCounts = regexp.MustCompile("^count: ")

// otherIndex is the use of another one, in which a filter would have to read all messages in other states.
var otherIndex = regexp.MustCompile(`using (identity|ordering|claimed)|"key": "(identity|ordering|claimed)"|inbox_pending_(identity|key|claimed)`)

// ofClaims are the statements that know the numbers of their rows.
var ofClaims = regexp.MustCompile("^(complete|fail|renew|claim: update)")

func readPlan(t *testing.T, db *sql.DB, statement string) (lines []string) {
	t.Helper()
	rows, err := db.Query(statement)
	require.NoError(t, err, "%.2000s", statement)
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		values := make([]any, len(columns))
		for n := range values {
			values[n] = new(sql.NullString)
		}
		require.NoError(t, rows.Scan(values...))
		lines = append(lines, values[len(values)-1].(*sql.NullString).String)
	}
	require.NoError(t, rows.Err())
	require.NotEmpty(t, lines)
	return lines
}

// service is a Receiver, a Subscriber and an Inbox on one pool.
type service struct {
	receiver   *deferred.Receiver
	subscriber *deferred.Subscriber
	inbox      *inbox.Inbox
}

const orders = "orders"

func newService(t *testing.T, pool *databases.Recorder, d databases.Database, config deferred.SubscriberConfig) *service {
	t.Helper()
	receiver, err := deferred.NewReceiver(pool, deferred.ReceiverConfig{Schema: d.Schema, Consumer: "suite", AutoInitializeSchema: true, Timeout: time.Minute}, nil)
	require.NoError(t, err)
	config.Schema, config.Consumer, config.AutoInitializeSchema = d.Schema, "suite", true
	subscriber, err := deferred.NewSubscriber(pool, config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, subscriber.Close()) })
	box, err := inbox.New(pool, inbox.Config{Schema: d.Schema, Consumer: "suite", ShareConsumer: true}, nil)
	require.NoError(t, err)
	return &service{receiver, subscriber, box}
}

func (s *service) receive(t *testing.T, n int) {
	t.Helper()
	msgs := make([]*message.Message, n)
	for i := range msgs {
		msgs[i] = message.NewMessage(watermill.NewUUID(), []byte("{}"))
	}
	require.NoError(t, s.receiver.Publish(orders, msgs...))
}

// process handles messages. The first one fails, and the next one takes longer than a renewal, to see these statements too.
func (s *service) process(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	messages, err := s.subscriber.Subscribe(ctx, orders)
	require.NoError(t, err)
	handler := s.inbox.Middleware(func(*message.Message) ([]*message.Message, error) { return nil, nil })
	for i := range n {
		msg := <-messages
		require.NotNil(t, msg, "still waiting")
		switch i {
		case 0:
			msg.Nack()
			continue
		case 1:
			time.Sleep(2 * time.Second)
		}
		_, err := handler(msg)
		require.NoError(t, err)
		msg.Ack()
	}
	require.NoError(t, s.subscriber.Close())
}

// statements are one of each kind.
func (s *service) statements(t *testing.T, recorder *databases.Recorder) map[string]string {
	t.Helper()
	kinds := map[string][]string{
		"receive: insert":   {"INSERT INTO", "inbox_pending", "ORDER BY b.n"},
		"receive: outcomes": {"WITH b", "SELECT b.n"},
		"claim: due":        {"SELECT seq, producer", "ORDER BY due_at"},
		"claim: behind":     {"SELECT c.seq"},
		"claim: update":     {"UPDATE", "attempts = attempts + 1"},
		"complete":          {"DELETE FROM", "EXISTS"},
		"fail":              {"UPDATE", "last_error"},
		"renew":             {"UPDATE", "token IN"},
		"sweep: claimed":    {"SELECT seq, attempts", "state = 2"},
		"sweep: waiting":    {"SELECT seq, attempts", "state = 3"},
		"sweep: suspects":   {"SELECT 1 FROM", "state = 1"},
		"count: groups":     {"other_consumer"},
		"count: up to":      {"COUNT(*)", "LIMIT 1000"},
	}
	found := map[string]string{}
	for kind, texts := range kinds {
		statements := recorder.With(texts...)
		require.NotEmpty(t, statements, kind)
		found[kind] = statements[len(statements)-1]
	}
	return found
}
