package sqlite

import wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

// releaseTransaction ends the subscriber's transaction and begins another on the same connection, so that database/sql
// and the driver still find one to commit or roll back. BEGIN DEFERRED takes no lock and no snapshot until the next
// statement.
const releaseTransaction = `COMMIT; BEGIN DEFERRED`

var _ wsql.OffsetsAdapter = OutboxOffsetsAdapter{}

// OutboxOffsetsAdapter keeps, in SQLite, the offset up to which each consumer group of watermill-sql's Subscriber has
// acked an outbox topic. It is the partner of OutboxSchema. The zero value works.
//
// What it guarantees: a group starts at the first message still stored, and goes on after the last ack stored, also
// in another process. Groups do not affect each other. The stored offset never goes back.
//
// Delivery is at least once. The offset is written once per batch, after its last ack, so messages that were acked
// come again if the process ends, the context given to Subscribe ends, or the write fails before that.
// Subscriber.Close stores the acks that the Subscriber has seen. A batch is not claimed: two subscribers of one group
// that run at the same time receive the same messages. Nothing is lost and the offset stays right, but run one per
// group.
//
// # Locks
//
// SQLite has one writer at a time, and the Subscriber keeps a transaction open while a message is handled. This
// adapter ends that transaction before each message and opens an empty one in its place. While a message is handled
// no lock and no snapshot is held: inboxes can write, the handler can publish into the same file, and checkpoints can
// shorten the WAL. The ack is the first statement of its transaction, so the busy timeout applies to it.
// (A transaction that had read before would fail at once if anyone had written since, roll back, and deliver its batch
// again, for ever under constant writes; one that held the write lock from its start would stop all writers for the
// time of a batch.)
//
// Therefore do not use the transaction that wsql.TxFromContext finds in a message from this Subscriber: what is
// written there is committed before the next message, also after a nack, and holds the write lock until then.
//
// Open the database in WAL mode and with a busy timeout; without the timeout, every ack that meets another writer
// fails and its batch comes again. A Subscriber needs one connection of the pool to itself per topic, so
// SetMaxOpenConns(1) is for a pool of its own. It can share the inbox's pool otherwise. With the two common drivers:
//
//	modernc.org/sqlite          file:app.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate
//	github.com/mattn/go-sqlite3 file:app.db?_busy_timeout=5000&_journal_mode=WAL&_txlock=immediate
//
// Inbox transactions want _txlock=immediate. The relay works with it, but every poll then waits for the write lock
// and holds it for one SELECT; a pool of its own with _txlock=deferred polls without a lock. A rollback journal
// (journal_mode=DELETE) works too, more slowly.
//
// SQLite does not queue writers: they poll, and with writers that leave no pause at all one of them can miss the lock
// for seconds. This is so without a relay as well. A relay in that position makes progress batch by batch: prefer
// large batches and a busy timeout of 30 s in its pool to small batches.
type OutboxOffsetsAdapter struct {
	// GenerateMessagesOffsetsTableName returns the table of offsets for a topic. The name is quoted here, so return it
	// bare: quotes and dots become part of the name.
	//
	// Default: "watermill_offsets_" and the topic.
	GenerateMessagesOffsetsTableName func(topic string) string
}

// MessagesOffsetsTable returns the quoted name of the topic's table of offsets.
func (a OutboxOffsetsAdapter) MessagesOffsetsTable(topic string) string {
	if a.GenerateMessagesOffsetsTableName != nil {
		return quoteTable(a.GenerateMessagesOffsetsTableName(topic))
	}

	return quoteTable("watermill_offsets_" + topic)
}

// SchemaInitializingQueries returns the statement that creates the topic's table of offsets. Running it again changes
// nothing.
func (a OutboxOffsetsAdapter) SchemaInitializingQueries(
	params wsql.OffsetsSchemaInitializingQueriesParams,
) ([]wsql.Query, error) {
	create := `CREATE TABLE IF NOT EXISTS ` + a.MessagesOffsetsTable(params.Topic) + ` (
	consumer_group TEXT NOT NULL PRIMARY KEY,
	offset_acked INTEGER NOT NULL
) WITHOUT ROWID`

	return []wsql.Query{{Query: create}}, nil
}

// BeforeSubscribingQueries registers the consumer group with offset 0, unless it is known. A group that has acked
// nothing yet then counts in the MIN(offset_acked) up to which messages may be deleted.
func (a OutboxOffsetsAdapter) BeforeSubscribingQueries(
	params wsql.BeforeSubscribingQueriesParams,
) ([]wsql.Query, error) {
	insert := `INSERT INTO ` + a.MessagesOffsetsTable(params.Topic) +
		` (consumer_group, offset_acked) VALUES (?, 0) ON CONFLICT (consumer_group) DO NOTHING`

	return []wsql.Query{{Query: insert, Args: []any{params.ConsumerGroup}}}, nil
}

// NextOffsetQuery returns the subquery for the last offset the consumer group has acked, or 0. It only reads.
func (a OutboxOffsetsAdapter) NextOffsetQuery(params wsql.NextOffsetQueryParams) (wsql.Query, error) {
	query := `SELECT COALESCE((SELECT offset_acked FROM ` + a.MessagesOffsetsTable(params.Topic) +
		` WHERE consumer_group = ?), 0)`

	return wsql.Query{Query: query, Args: []any{params.ConsumerGroup}}, nil
}

// ConsumedMessageQuery returns the statements that release the locks of the Subscriber's transaction. The Subscriber
// runs them before it emits each message.
func (a OutboxOffsetsAdapter) ConsumedMessageQuery(wsql.ConsumedMessageQueryParams) (wsql.Query, error) {
	return wsql.Query{Query: releaseTransaction}, nil
}

// AckMessageQuery returns the statement that stores the offset of the last message acked in a batch. A subscriber that
// is behind another of its group does not move the offset back.
func (a OutboxOffsetsAdapter) AckMessageQuery(params wsql.AckMessageQueryParams) (wsql.Query, error) {
	ack := `INSERT INTO ` + a.MessagesOffsetsTable(params.Topic) + ` (consumer_group, offset_acked) VALUES (?, ?)
ON CONFLICT (consumer_group) DO UPDATE SET offset_acked = excluded.offset_acked
WHERE excluded.offset_acked > offset_acked`

	return wsql.Query{Query: ack, Args: []any{params.ConsumerGroup, params.LastRow.Offset}}, nil
}
