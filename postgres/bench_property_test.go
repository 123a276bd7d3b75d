package postgres_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/postgres"
)

// bench is a schema of the server on which properties are tried one after the other, with one driver after the other.
type bench struct {
	admin     *sql.DB
	namespace string
	drivers   []driver
}

type driver struct {
	name string
	db   wsql.Beginner
}

// The outbox has a payload column of each kind, in the tables of these topics.
const bytesTopic, jsonTopic = "bytes", "json"

var outboxSchema = wsql.DefaultPostgreSQLSchema{GeneratePayloadType: func(topic string) string {
	return map[string]string{bytesTopic: "BYTEA", jsonTopic: "JSON"}[topic]
}}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	server := inboxtest.Server(tb, "INBOX_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable", ping)
	b := &bench{namespace: fmt.Sprintf("inboxbench_%x", rand.Uint64())}
	root := b.open(tb, "pgx", server)
	_, err := root.Exec("CREATE SCHEMA " + b.namespace)
	require.NoError(tb, err)
	tb.Cleanup(func() { _, _ = root.Exec("DROP SCHEMA " + b.namespace + " CASCADE") })

	dsn := dsnWith(tb, server, "search_path", b.namespace, "synchronous_commit", "off")
	b.admin = b.open(tb, "pgx", dsn)
	pool, err := pgxpool.New(context.Background(), dsn)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	b.drivers = []driver{
		{"pgx", wsql.BeginnerFromPgx(pool)},
		{"database-sql-pgx", wsql.BeginnerFromStdSQL(b.open(tb, "pgx", dsn))},
		{"database-sql-pq", wsql.BeginnerFromStdSQL(b.open(tb, "postgres", dsn))},
		{"database-sql-pq-escapes", wsql.BeginnerFromStdSQL(b.open(tb, "postgres", dsnWith(tb, dsn, "standard_conforming_strings", "off", "binary_parameters", "yes")))},
	}
	b.exec(tb, postgres.Schema{}.DDL())
	for _, topic := range []string{bytesTopic, jsonTopic} {
		queries, err := outboxSchema.SchemaInitializingQueries(wsql.SchemaInitializingQueriesParams{Topic: topic})
		require.NoError(tb, err)
		for _, query := range queries {
			b.exec(tb, query.Query)
		}
	}
	return b
}

func (b *bench) open(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(tb, err)
	db.SetMaxOpenConns(2)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func (b *bench) exec(tb testing.TB, statement string) {
	tb.Helper()
	_, err := b.admin.Exec(statement)
	require.NoError(tb, err, statement)
}

func (b *bench) clear(tb testing.TB) {
	tb.Helper()
	b.exec(tb, "DELETE FROM inbox_messages; DELETE FROM watermill_bytes; DELETE FROM watermill_json")
}

// process delivers a message as the message of a row to a handler that publishes the outgoing messages. One identity in two is inserted without waiting.
func (b *bench) process(tb testing.TB, db wsql.Beginner, row inbox.Row, incoming *message.Message, topic string, out ...*message.Message) (inbox.Outcome, error) {
	tb.Helper()
	box, err := inbox.New(db, inbox.Config{
		Schema: postgres.Schema{}, Consumer: row.Consumer, NoWait: len(row.Producer)%2 == 1, Outbox: inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: outboxSchema}, nil),
		Identity: func(*message.Message) (inbox.Identity, error) {
			return inbox.Identity{Producer: row.Producer, ID: row.ID}, nil
		},
	}, nil)
	if err != nil {
		return 0, err
	}
	ran := false
	outcome, err := box.Process(incoming, func(ctx context.Context) error {
		ran = true
		for _, msg := range out {
			msg.SetContext(ctx)
		}
		_ = box.Publisher().Publish(topic, out...) // a careless handler: the delivery must fail nevertheless
		return nil
	})
	require.True(tb, ran == (outcome == inbox.Processed) || err != nil, "outcome %v, the handler ran: %t", outcome, ran)
	return outcome, err
}

// stored returns the identities as another connection reads them, without the fingerprint.
func (b *bench) stored(tb testing.TB) map[inbox.Row]bool {
	tb.Helper()
	result, err := b.admin.Query("SELECT consumer, producer, message_id FROM inbox_messages")
	require.NoError(tb, err)
	defer func() { _ = result.Close() }()
	found := map[inbox.Row]bool{}
	for result.Next() {
		var consumer, producer, id []byte
		require.NoError(tb, result.Scan(&consumer, &producer, &id))
		row := inbox.Row{Consumer: string(consumer), Producer: string(producer), ID: string(id)}
		require.False(tb, found[row], "%q is stored twice", row)
		found[row] = true
	}
	require.NoError(tb, result.Err())
	return found
}

// outgoing is what another connection reads of a message in the outbox.
type outgoing struct {
	uuid, payload string
	metadata      message.Metadata
}

func (b *bench) outgoing(tb testing.TB, topic string) (found []outgoing) {
	tb.Helper()
	result, err := b.admin.Query("SELECT uuid, payload, metadata FROM " + outboxSchema.MessagesTable(topic) + ` ORDER BY "offset"`)
	require.NoError(tb, err)
	defer func() { _ = result.Close() }()
	for result.Next() {
		var uuid, payload, metadata []byte
		require.NoError(tb, result.Scan(&uuid, &payload, &metadata))
		row := outgoing{uuid: string(uuid), payload: string(payload)}
		require.NoError(tb, json.Unmarshal(metadata, &row.metadata))
		found = append(found, row)
	}
	require.NoError(tb, result.Err())
	return found
}

func dsnWith(tb testing.TB, dsn string, parameters ...string) string {
	tb.Helper()
	address, err := url.Parse(dsn)
	require.NoError(tb, err)
	query := address.Query()
	for n := 0; n < len(parameters); n += 2 {
		query.Set(parameters[n], parameters[n+1])
	}
	address.RawQuery = query.Encode()
	return address.String()
}
