package mysql_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/mysql"
)

// bench is a database of a server on which properties are tried one after the other, with one DSN after the other.
type bench struct {
	admin     *sql.DB
	namespace string
	mariaDB   bool
	maxPacket int // max_allowed_packet of the server
	drivers   []driver
}

type driver struct {
	name string
	db   wsql.Beginner
}

// variants are the parameters of the DSN under which bytes could be read differently.
var variants = map[string]map[string]string{
	"default":                  nil,
	"interpolateParams":        {"interpolateParams": "true"},
	"not-strict":               {"sql_mode": "''"},
	"no-backslash":             {"sql_mode": "'STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES'"},
	"no-backslash-interpolate": {"sql_mode": "'NO_BACKSLASH_ESCAPES'", "interpolateParams": "true"},
	"ansi":                     {"sql_mode": "'ANSI,STRICT_ALL_TABLES'"},
}

// The outbox has a payload column of each kind, in the tables of these topics.
const bytesTopic, jsonTopic = "bytes", "json"

var outboxSchema = wsql.DefaultMySQLSchema{GeneratePayloadType: func(topic string) string {
	return map[string]string{bytesTopic: "LONGBLOB", jsonTopic: "JSON"}[topic]
}}

func newBench(tb testing.TB, server server) *bench {
	tb.Helper()
	config, err := mysqldriver.ParseDSN(inboxtest.Server(tb, server.variable, server.fallback, ping))
	require.NoError(tb, err)
	b := &bench{namespace: fmt.Sprintf("inboxbench_%x", rand.Uint64()), mariaDB: server.mariaDB}
	root := b.open(tb, config)
	_, err = root.Exec("CREATE DATABASE " + b.namespace)
	require.NoError(tb, err)
	tb.Cleanup(func() { _, _ = root.Exec("DROP DATABASE " + b.namespace) })

	config.DBName = b.namespace
	b.admin = b.open(tb, config)
	require.NoError(tb, b.admin.QueryRow("SELECT @@max_allowed_packet").Scan(&b.maxPacket))
	for name, parameters := range variants {
		dsn := config.Clone()
		dsn.Params = parameters
		b.drivers = append(b.drivers, driver{name, wsql.BeginnerFromStdSQL(b.open(tb, dsn))})
	}
	slices.SortFunc(b.drivers, func(a, b driver) int { return strings.Compare(a.name, b.name) })
	b.createTables(tb)
	return b
}

// createTables makes the metadata of the outbox bytes: with interpolateParams MySQL takes none for JSON.
func (b *bench) createTables(tb testing.TB) {
	tb.Helper()
	b.exec(tb, mysql.Schema{}.DDL())
	for _, topic := range []string{bytesTopic, jsonTopic} {
		queries, err := outboxSchema.SchemaInitializingQueries(wsql.SchemaInitializingQueriesParams{Topic: topic})
		require.NoError(tb, err)
		for _, query := range queries {
			b.exec(tb, strings.ReplaceAll(query.Query, "`metadata` JSON", "`metadata` LONGBLOB"))
		}
	}
}

func (b *bench) open(tb testing.TB, config *mysqldriver.Config) *sql.DB {
	tb.Helper()
	config = config.Clone()
	db, err := sql.Open("mysql", config.FormatDSN())
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
	tx, err := b.admin.Begin()
	require.NoError(tb, err)
	for _, table := range []string{"inbox_messages", "watermill_bytes", "watermill_json"} {
		_, err := tx.Exec("DELETE FROM " + table)
		require.NoError(tb, err)
	}
	require.NoError(tb, tx.Commit())
}

// process delivers a message as the message of a row to a handler that publishes the outgoing messages. One identity in two is inserted without waiting.
func (b *bench) process(tb testing.TB, db wsql.Beginner, row inbox.Row, incoming *message.Message, topic string, out ...*message.Message) (inbox.Outcome, error) {
	tb.Helper()
	box, err := inbox.New(db, inbox.Config{
		Schema: mysql.Schema{MariaDB: b.mariaDB}, Consumer: row.Consumer, NoWait: len(row.Producer)%2 == 1, Outbox: inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: outboxSchema}, nil),
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
	result, err := b.admin.Query("SELECT uuid, payload, metadata FROM " + outboxSchema.MessagesTable(topic) + " ORDER BY `offset`")
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
