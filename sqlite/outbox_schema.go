package sqlite

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

// defaultSubscribeBatchSize is the batch size of watermill-sql's own schemas.
const defaultSubscribeBatchSize = 100

// maxInsertMessages keeps one INSERT below SQLite's default limit of 32766 variables: a message takes three.
const maxInsertMessages = 32766 / 3

var _ wsql.SchemaAdapter = OutboxSchema{}

// OutboxSchema lets watermill-sql's Publisher and Subscriber keep messages in SQLite. With a Publisher in the
// transaction of an inbox it is the outbox; a Subscriber over the same table, paired with OutboxOffsetsAdapter, is
// the relay to the broker. The zero value works.
//
// What it guarantees:
//   - A message is visible to the relay if and only if its transaction committed.
//   - Order: a topic is read in the order of the commits and, inside one transaction, in the order of Publish.
//     SQLite has one writer at a time, so a transaction that has been given an offset commits or rolls back before
//     another can be given the next one. Reading what lies above the last offset therefore skips nothing. Offsets may
//     have gaps, and are never used again, also not after rows were deleted.
//   - Delivery is at least once. See OutboxOffsetsAdapter for when a message comes twice, and for the locks.
//   - UUID, payload (any bytes, up to SQLite's limit of 1 GB for a row) and metadata come back as they were
//     published. A UUID may have any length. Metadata must be valid UTF-8, because it is stored as JSON;
//     other metadata is refused.
//
// Limits:
//   - The database is a file, best in WAL mode, opened without shared cache: with cache=shared and
//     PRAGMA read_uncommitted the relay would see offsets that are not committed, and skip others.
//   - SQLite folds ASCII case in names of tables: topics that differ in nothing else share one table. Do not name one
//     topic "x" and another "offsets_x" either: the second has the table that holds the offsets of the first.
//   - Nothing is deleted. Delete what every consumer group has acked from time to time:
//     DELETE FROM "watermill_<topic>" WHERE "offset" <= (SELECT MIN(offset_acked) FROM "watermill_offsets_<topic>")
//
// Publisher's AutoInitializeSchema cannot be used on a transaction: create the table beforehand, for example with the
// Subscriber's InitializeSchema or SubscribeInitialize.
type OutboxSchema struct {
	// GenerateMessagesTableName returns the table for a topic. The name is quoted here, so return it bare: unlike
	// watermill-sql's MySQL and PostgreSQL schemas, quotes and dots become part of the name.
	//
	// Default: "watermill_" and the topic.
	GenerateMessagesTableName func(topic string) string

	// SubscribeBatchSize is the number of messages read at once and acked in one write.
	//
	// A higher value costs fewer writes, holds more payloads in memory, and repeats more messages after a crash: all
	// those since the start of the batch.
	//
	// Default: 100, also for values below 1.
	SubscribeBatchSize int
}

// MessagesTable returns the quoted name of the topic's table.
func (s OutboxSchema) MessagesTable(topic string) string {
	if s.GenerateMessagesTableName != nil {
		return quoteTable(s.GenerateMessagesTableName(topic))
	}

	return quoteTable("watermill_" + topic)
}

// SchemaInitializingQueries returns the statement that creates the topic's table. Running it again changes nothing.
func (s OutboxSchema) SchemaInitializingQueries(params wsql.SchemaInitializingQueriesParams) ([]wsql.Query, error) {
	// AUTOINCREMENT and not the plain rowid: the rowid of a deleted last row is given out again, below the offset
	// that consumers have acked.
	create := `CREATE TABLE IF NOT EXISTS ` + s.MessagesTable(params.Topic) + ` (
	"offset" INTEGER PRIMARY KEY AUTOINCREMENT,
	uuid TEXT NOT NULL,
	created_at TIMESTAMP NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
	payload BLOB,
	metadata TEXT
)`

	return []wsql.Query{{Query: create}}, nil
}

// InsertQuery returns the statement that inserts the messages in their order, or one without effect if there are none.
// It refuses more than 10922 messages, which SQLite's limit of variables does not allow in one statement.
func (s OutboxSchema) InsertQuery(params wsql.InsertQueryParams) (wsql.Query, error) {
	if len(params.Msgs) == 0 {
		return wsql.Query{Query: `SELECT 1 WHERE 0`}, nil
	}

	table := s.MessagesTable(params.Topic)
	if len(params.Msgs) > maxInsertMessages {
		return wsql.Query{}, fmt.Errorf("sqlite: insert into %s: %d messages in one Publish, at most %d fit",
			table, len(params.Msgs), maxInsertMessages)
	}

	args, err := insertArgs(params.Msgs)
	if err != nil {
		return wsql.Query{}, fmt.Errorf("sqlite: insert into %s: %w", table, err)
	}

	values := strings.TrimSuffix(strings.Repeat(`(?,?,?),`, len(params.Msgs)), ",")

	return wsql.Query{Query: `INSERT INTO ` + table + ` (uuid, payload, metadata) VALUES ` + values, Args: args}, nil
}

// SelectQuery returns the statement that reads the next batch of the consumer group, in the order of the offsets.
// It only reads.
func (s OutboxSchema) SelectQuery(params wsql.SelectQueryParams) (wsql.Query, error) {
	next, err := params.OffsetsAdapter.NextOffsetQuery(wsql.NextOffsetQueryParams{
		Topic:         params.Topic,
		ConsumerGroup: params.ConsumerGroup,
	})
	if err != nil {
		return wsql.Query{}, err
	}

	query := fmt.Sprintf(
		`SELECT "offset", uuid, payload, metadata FROM %s WHERE "offset" > (%s) ORDER BY "offset" LIMIT %d`,
		s.MessagesTable(params.Topic), next.Query, s.batchSize(),
	)

	return wsql.Query{Query: query, Args: next.Args}, nil
}

// UnmarshalMessage reads one row of SelectQuery. The message's metadata is never nil, so that it can be set.
func (s OutboxSchema) UnmarshalMessage(params wsql.UnmarshalMessageParams) (wsql.Row, error) {
	var row wsql.Row
	if err := params.Row.Scan(&row.Offset, &row.UUID, &row.Payload, &row.Metadata); err != nil {
		return wsql.Row{}, fmt.Errorf("sqlite: scan outbox row: %w", err)
	}

	row.Msg = message.NewMessage(string(row.UUID), row.Payload)
	if row.Metadata == nil {
		return row, nil
	}
	if err := json.Unmarshal(row.Metadata, &row.Msg.Metadata); err != nil {
		return wsql.Row{}, fmt.Errorf("sqlite: metadata of outbox row %d: %w", row.Offset, err)
	}

	return row, nil
}

// SubscribeIsolationLevel returns the default level. SQLite has no other than serializable, and every driver accepts
// this value.
func (s OutboxSchema) SubscribeIsolationLevel() sql.IsolationLevel {
	return sql.LevelDefault
}

func (s OutboxSchema) batchSize() int {
	if s.SubscribeBatchSize < 1 {
		return defaultSubscribeBatchSize
	}

	return s.SubscribeBatchSize
}

// insertArgs returns uuid, payload and metadata of each message.
func insertArgs(msgs message.Messages) ([]any, error) {
	args := make([]any, 0, 3*len(msgs))
	for _, msg := range msgs {
		metadata, err := marshalMetadata(msg.Metadata)
		if err != nil {
			return nil, fmt.Errorf("metadata of message %.100q: %w", msg.UUID, err)
		}
		args = append(args, msg.UUID, []byte(msg.Payload), metadata)
	}

	return args, nil
}

// marshalMetadata returns JSON as a string: bytes would be stored as a BLOB, which SQLite's JSON functions refuse or
// take for their binary format, depending on the version. Nil metadata is NULL: a JSON null would be read as a nil map.
func marshalMetadata(metadata message.Metadata) (any, error) {
	if metadata == nil {
		return nil, nil
	}
	for key, value := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return nil, fmt.Errorf("%.100q is not UTF-8, and JSON would replace it", key+": "+value)
		}
	}

	text, err := json.Marshal(metadata)
	if err != nil {
		return nil, err
	}

	return string(text), nil
}

// quoteTable quotes any text as one identifier.
func quoteTable(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}
