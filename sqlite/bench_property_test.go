package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"path/filepath"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/sqlite"
)

// bench is a database on which properties are tried one after the other.
type bench struct {
	db     *sql.DB
	outbox inbox.OutboxFactory
}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	file := "file:" + filepath.Join(tb.TempDir(), "bench.db") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate"
	db, err := sql.Open("sqlite", file)
	require.NoError(tb, err)
	db.SetMaxOpenConns(1)
	tb.Cleanup(func() { _ = db.Close() })

	b := &bench{db: db, outbox: inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: sqlite.OutboxSchema{}}, nil)}
	queries, err := sqlite.OutboxSchema{}.SchemaInitializingQueries(wsql.SchemaInitializingQueriesParams{Topic: "out"})
	require.NoError(tb, err)
	for _, query := range queries {
		b.exec(tb, query.Query)
	}
	b.exec(tb, sqlite.Schema{}.DDL())
	return b
}

func (b *bench) exec(tb testing.TB, statement string) {
	tb.Helper()
	_, err := b.db.Exec(statement)
	require.NoError(tb, err, statement)
}

func (b *bench) clear(tb testing.TB) {
	tb.Helper()
	b.exec(tb, "DELETE FROM inbox_messages; DELETE FROM watermill_out")
}

// process delivers the message of a row, as the row says and with its content, to a handler that publishes the outgoing messages. An outcome
// other than Processed means that the handler did not run.
func (b *bench) process(tb testing.TB, row inbox.Row, incoming *message.Message, out ...*message.Message) (inbox.Outcome, error) {
	tb.Helper()
	box, err := inbox.New(wsql.BeginnerFromStdSQL(b.db), inbox.Config{
		Schema: sqlite.Schema{}, Consumer: row.Consumer, Outbox: b.outbox,
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
		_ = box.Publisher().Publish("out", out...) // a careless handler: the delivery must fail nevertheless
		return nil
	})
	require.True(tb, ran == (outcome == inbox.Processed) || err != nil, "outcome %v, the handler ran: %t", outcome, ran)
	return outcome, err
}

// stored returns the identities as the database gives them back, without fingerprint and token.
func (b *bench) stored(tb testing.TB) map[inbox.Row]bool {
	tb.Helper()
	result, err := b.db.Query("SELECT consumer, producer, message_id FROM inbox_messages")
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

// outgoing is what another reads of a message in the outbox.
type outgoing struct {
	uuid, payload string
	metadata      message.Metadata
}

func (b *bench) outgoing(tb testing.TB) (found []outgoing) {
	tb.Helper()
	result, err := b.db.Query(`SELECT CAST(uuid AS BLOB), payload, metadata FROM watermill_out ORDER BY "offset"`)
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
