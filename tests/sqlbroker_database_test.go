package tests

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/mysql"
	"github.com/watermill-inbox/inbox/postgres"
	"github.com/watermill-inbox/inbox/sqlite"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// sqlEngine is a database with an inbox and its outbox. The outbox is the sqlBroker of the engine's name.
type sqlEngine struct {
	schema inbox.Schema
	create func(t *testing.T) (dsn string, db *sql.DB) // an empty database
	pool   func(dsn string, connections int) (db wsql.Beginner, closePool func(), err error)
	effect string // the handler's statement
}

var sqlEngines = map[string]sqlEngine{
	"postgres": {postgres.Schema{}, stockDatabases["postgres"].create, databases.OpenPgx, "INSERT INTO effects (consumer, id) VALUES ($1, $2)"},
	"mysql":    {mysql.Schema{}, stockDatabases["mysql"].create, databases.OpenStd("mysql"), "INSERT INTO effects (consumer, id) VALUES (?, ?)"},
	"mariadb":  {mysql.Schema{MariaDB: true}, stockDatabases["mariadb"].create, databases.OpenStd("mysql"), "INSERT INTO effects (consumer, id) VALUES (?, ?)"},
	"sqlite":   {sqlite.Schema{}, createSQLite, databases.OpenStd("sqlite"), "INSERT INTO effects (consumer, id) VALUES (?, ?)"},
}

func createSQLite(t *testing.T) (dsn string, db *sql.DB) {
	t.Helper()
	dsn = "file:" + filepath.Join(t.TempDir(), "broker.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	db, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return dsn, db
}

// sqlBroker is a pair of adapters with which watermill-sql makes a broker of a database.
type sqlBroker struct {
	engine  string
	schema  sqlSchema
	offsets wsql.OffsetsAdapter

	insert  string // a producer's own statement, with table, uuid, payload and metadata
	unacked string // counts the messages of a topic that are not acked
}

type sqlSchema interface {
	wsql.SchemaAdapter
	MessagesTable(topic string) string
}

const (
	plainInsert    = "INSERT INTO %s (uuid, payload, metadata) VALUES ('%s', '%s', '%s')"
	unackedOffsets = "SELECT COUNT(*) FROM watermill_%[1]s m WHERE m.offset > COALESCE((SELECT MAX(o.offset_acked) FROM watermill_offsets_%[1]s o), 0)"
	unackedQueue   = "SELECT COUNT(*) FROM watermill_%[1]s WHERE acked = FALSE"
)

// The batches of the queue schemas must be one: of a larger batch they ack also what was not handled yet when the ack deadline passed or the
// subscriber was closed, and those messages are lost.
var sqlBrokers = map[string]sqlBroker{
	"postgres": {
		"postgres", wsql.DefaultPostgreSQLSchema{}, wsql.DefaultPostgreSQLOffsetsAdapter{},
		"INSERT INTO %s (uuid, payload, metadata, transaction_id) VALUES ('%s', '%s', '%s', pg_current_xact_id())",
		`SELECT COUNT(*) FROM watermill_%[1]s m WHERE NOT EXISTS (SELECT 1 FROM watermill_offsets_%[1]s o
			WHERE (m.transaction_id, m."offset") <= (o.last_processed_transaction_id, o.offset_acked))`,
	},
	"postgres-queue": {"postgres", wsql.PostgreSQLQueueSchema{SubscribeBatchSize: 1}, wsql.PostgreSQLQueueOffsetsAdapter{}, plainInsert, unackedQueue},
	"mysql":          {"mysql", wsql.DefaultMySQLSchema{}, wsql.DefaultMySQLOffsetsAdapter{}, plainInsert, unackedOffsets},
	"mysql-queue":    {"mysql", wsql.MySQLQueueSchema{SubscribeBatchSize: 1}, wsql.MySQLQueueOffsetsAdapter{}, plainInsert, unackedQueue},
	"mariadb":        {"mariadb", wsql.DefaultMySQLSchema{}, wsql.DefaultMySQLOffsetsAdapter{}, plainInsert, unackedOffsets},
	"mariadb-queue":  {"mariadb", wsql.MySQLQueueSchema{SubscribeBatchSize: 1}, wsql.MySQLQueueOffsetsAdapter{}, plainInsert, unackedQueue},
	"sqlite":         {"sqlite", sqlite.OutboxSchema{}, sqlite.OutboxOffsetsAdapter{}, plainInsert, unackedOffsets},
}

// soon is every interval of a subscriber.
const soon = 50 * time.Millisecond

// subscriber leaves the ack deadline at its default, 30 s, if it is zero here.
func (b sqlBroker) subscriber(db wsql.Beginner, ackDeadline time.Duration) (*wsql.Subscriber, error) {
	config := wsql.SubscriberConfig{
		SchemaAdapter: b.schema, OffsetsAdapter: b.offsets, PollInterval: soon, ResendInterval: soon, RetryInterval: soon,
	}
	if ackDeadline > 0 {
		config.AckDeadline = &ackDeadline
	}
	return wsql.NewSubscriber(db, config, nil)
}

// sqlPair is a broker and the database of an inbox, perhaps the same one.
type sqlPair struct {
	*testing.T
	broker      sqlBroker
	engine      sqlEngine
	config      sqlServiceConfig // of every case, but for what a case adds
	queue       *sql.DB          // the broker's database
	db          *sql.DB          // the inbox's
	queueWriter wsql.Beginner    // for publishers of the tests
}

func newSQLPair(t *testing.T, broker, engine string) *sqlPair {
	p := &sqlPair{T: t, broker: sqlBrokers[broker], engine: sqlEngines[engine], config: sqlServiceConfig{Broker: broker, Engine: engine, Connections: 4}}
	p.config.DSN, p.db = p.engine.create(t)
	p.config.BrokerDSN, p.queue = p.config.DSN, p.db
	if p.broker.engine != engine {
		p.config.BrokerDSN, p.queue = sqlEngines[p.broker.engine].create(t)
	}
	db, closePool, err := sqlEngines[p.broker.engine].pool(p.config.BrokerDSN, 2)
	require.NoError(t, err)
	t.Cleanup(closePool)
	p.queueWriter = db

	// No key: the inbox alone must prevent a second row.
	_, err = p.db.Exec("CREATE TABLE effects (consumer VARCHAR(64) NOT NULL, id VARCHAR(64) NOT NULL)")
	require.NoError(t, err)
	return p
}

// sqlRows are what is durable of one consumer.
type sqlRows struct{ effects, identities, outbox int }

func allOnce(n int) sqlRows { return sqlRows{n, n, n} }

func (c *sqlCase) rows() (r sqlRows) {
	c.Helper()
	r.effects = countRows(c.T, c.db, fmt.Sprintf("SELECT COUNT(*) FROM effects WHERE consumer = '%s'", c.name))
	r.identities = len(c.identity())
	r.outbox = countRows(c.T, c.db, "SELECT COUNT(*) FROM "+sqlBrokers[c.config.Engine].schema.MessagesTable(c.config.outbox()))
	return r
}

// identity returns the ids of the consumer's identities.
func (c *sqlCase) identity() (ids []string) {
	c.Helper()
	found, err := c.db.Query("SELECT consumer, message_id FROM inbox_messages")
	require.NoError(c, err)
	defer func() { _ = found.Close() }()
	for found.Next() {
		var consumer, id []byte
		require.NoError(c, found.Scan(&consumer, &id))
		if string(consumer) == c.name {
			ids = append(ids, string(id))
		}
	}
	require.NoError(c, found.Err())
	return ids
}
