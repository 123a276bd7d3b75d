// Package postgres is the inbox's dialect for PostgreSQL 12 and newer, with pgx (native and through database/sql) and lib/pq.
//
// Identities are BYTEA, so that any bytes are stored and compared exactly whatever the encoding and collation of the
// database. To read them: SELECT encode(message_id, 'escape').
//
// Set lock_timeout in the DSN a little below the Inbox's WaitTimeout: the server then ends a long wait for another holder of an identity,
// instead of the client closing the connection.
//
// With pgx's simple_protocol and exec modes the Inbox works, but watermill-sql's JSON columns do not: the outbox needs another mode, or a schema with BYTEA columns.
// These modes read bytes only with bytea_output at its default, hex: with escape a Receiver refuses all messages.
//
// A handler that changes its session uses SET LOCAL: SET search_path outlives the message on that connection, which may then find no table, or another, under
// the Inbox's name. Where search_path is not the same for all, qualify the name: Schema{MessagesTable: "app.inbox_messages"}.
//
// A deferred trigger that refuses a COMMIT should raise an error of class 23, 44 or P0 (RAISE EXCEPTION's default): then the message is poison. For other codes it is not
// certain that nothing was committed, and the message is tried again.
//
// Prefer pgx to lib/pq: lib/pq goes on reading when a context ends, so a server that is silent while its connection stays open keeps
// a delivery waiting beyond all timeouts. With lib/pq set connect_timeout, and TCP keepalives on both sides.
//
// Never send BEGIN, COMMIT or ROLLBACK as a statement of a handler. Outside a transaction PostgreSQL takes COMMIT for a success with a warning, which
// database/sql does not show, so that the message would be acked without its identity. pgx itself knows the state of its
// connection, and the delivery fails.
package postgres

import (
	"database/sql"
	_ "embed"
	"encoding/hex"
	"errors"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5"
	"github.com/lib/pq"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

// maxIdentifier is the length in bytes to which PostgreSQL cuts names.
const maxIdentifier = 63

//go:embed schema.sql
var ddl string

var (
	_ inbox.Schema           = Schema{}
	_ inbox.NoWaitInserter   = Schema{}
	_ inbox.IsolationLimiter = Schema{}
)

// Schema is the dialect for PostgreSQL. The zero value is ready to use. It holds no state and is safe for concurrent use.
type Schema struct {
	// MessagesTable is the table of identities, optionally qualified with a schema ("app.inbox_messages"), its case as
	// written. Default: inbox_messages.
	MessagesTable string

	// PendingTable and OutgoingTable are the tables of package deferred. Defaults: inbox_pending, inbox_outgoing.
	PendingTable, OutgoingTable string
}

func (s Schema) name() string {
	if s.MessagesTable == "" {
		return inbox.DefaultMessagesTable
	}
	return s.MessagesTable
}

// Table returns the quoted name of the table of identities. Validate has refused names that cannot be quoted.
func (s Schema) Table() string { return quoted(s.name()) }

func quoted(name string) string {
	return `"` + strings.ReplaceAll(name, ".", `"."`) + `"`
}

// Validate reports table names that cannot be used.
func (s Schema) Validate() error {
	_, err := inbox.QuoteTable(s.name(), `"`, maxIdentifier)
	for _, queue := range []deferred.Queue{deferred.Pending, deferred.Outgoing} {
		_, queueErr := inbox.QuoteTable(s.queueName(queue), `"`, maxIdentifier-len(longestIndexSuffix))
		err = errors.Join(err, queueErr)
	}
	return err
}

// DDL returns the script that creates the table.
func (s Schema) DDL() string {
	return strings.ReplaceAll(ddl, "{{table}}", s.Table())
}

var schemaLock = wsql.Query{Query: "SELECT pg_advisory_xact_lock(hashtextextended('watermill-inbox schema', 0))"}

// SchemaInitializingQueries returns DDL behind a lock, because CREATE TABLE IF NOT EXISTS fails when two sessions run it at once.
func (s Schema) SchemaInitializingQueries() []wsql.Query {
	return []wsql.Query{
		schemaLock,
		{Query: s.DDL()},
	}
}

// InsertQuery waits for a transaction that holds the key, then inserts a row or, if that transaction has committed, none. It is
// one text without parameters: one round trip with every driver, and no prepared statement.
func (s Schema) InsertQuery(row inbox.Row) wsql.Query {
	return s.insert(row, "")
}

// insert builds the text by hand, because it runs for every message.
func (s Schema) insert(row inbox.Row, where string) wsql.Query {
	b := make([]byte, 0, 256+2*(len(row.Consumer)+len(row.Producer)+len(row.ID)+len(row.Fingerprint))+len(where))
	b = append(b, "INSERT INTO "...)
	b = append(b, s.Table()...)
	b = append(b, " (consumer, producer, message_id, fingerprint, processed_at) SELECT "...)
	b = appendBytea(b, row.Consumer)
	b = append(b, ',')
	b = appendBytea(b, row.Producer)
	b = append(b, ',')
	b = appendBytea(b, row.ID)
	b = append(b, ',')
	b = appendBytea(b, row.Fingerprint)
	b = append(b, ",now()"...)
	b = append(b, where...)
	b = append(b, " ON CONFLICT DO NOTHING"...)
	return wsql.Query{Query: string(b)}
}

// appendBytea writes a literal that means the same with standard_conforming_strings on and off.
func appendBytea(b []byte, value string) []byte {
	b = append(b, "decode('"...)
	b = hex.AppendEncode(b, []byte(value))
	return append(b, "','hex')"...)
}

// NoWaitQueries takes an advisory lock on the key in this table first, for the time of the transaction, and inserts only with it. Two keys with the
// same 64-bit hash exclude each other for that time, which delays one of them and nothing else.
func (s Schema) NoWaitQueries(row inbox.Row) (probe, insert wsql.Query) {
	key := make([]byte, 0, 64+2*(len(row.Consumer)+len(row.Producer)+len(row.ID)))
	key = append(key, " WHERE pg_try_advisory_xact_lock(hashtextextended('"...)
	for _, part := range []string{row.Consumer, row.Producer, row.ID} {
		key = hex.AppendEncode(key, []byte(part))
		key = append(key, '/')
	}
	key = append(key, "', '"...)
	key = append(key, s.Table()...)
	key = append(key, "'::regclass::oid::bigint))"...)
	return wsql.Query{}, s.insert(row, string(key))
}

// NoWaitReadCommitted is false: NoWaitQueries work at every isolation level.
func (s Schema) NoWaitReadCommitted() bool { return false }

// SelectQuery uses parameters, so that drivers can cache the statement.
func (s Schema) SelectQuery(row inbox.Row) wsql.Query {
	return wsql.Query{
		Query: "SELECT encode(fingerprint, 'hex'), EXTRACT(EPOCH FROM clock_timestamp() - processed_at)::bigint FROM " + s.Table() +
			" WHERE consumer = $1 AND producer = $2 AND message_id = $3",
		Args: []any{[]byte(row.Consumer), []byte(row.Producer), []byte(row.ID)},
	}
}

// Isolations are the four levels of the SQL standard.
func (s Schema) Isolations() []sql.IsolationLevel {
	return []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
}

// DescribeQuery reads the catalog, whose view of columns needs no privilege on the table.
func (s Schema) DescribeQuery() wsql.Query { return describe(s.Table()) }

func describe(table string) wsql.Query {
	return wsql.Query{
		Query: `SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
			FROM pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
			UNION ALL
			SELECT 'primary key', string_agg(a.attname, ',' ORDER BY k.position)
			FROM pg_index i
			CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, position)
			JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
			WHERE i.indrelid = to_regclass($1) AND i.indisprimary AND i.indisvalid AND i.indimmediate
			GROUP BY i.indrelid
			UNION ALL
			SELECT 'persistence', CASE relpersistence WHEN 'p' THEN 'permanent' WHEN 'u' THEN 'unlogged' ELSE 'temporary' END
			FROM pg_class WHERE oid = to_regclass($1)`,
		Args: []any{table},
	}
}

// Columns describes the table that DDL creates.
func (s Schema) Columns() []inbox.Column {
	const exact = "identities are compared as bytes"
	return []inbox.Column{
		{Name: "consumer", Type: "bytea not null", Why: exact},
		{Name: "producer", Type: "bytea not null", Why: exact},
		{Name: "message_id", Type: "bytea not null", Why: exact},
		{Name: "fingerprint", Type: "bytea not null", Why: "it holds the sum of the content"},
		{Name: "processed_at", Type: "timestamp with time zone not null", Why: "retention reads it"},
		{Name: "primary key", Type: "consumer,producer,message_id", Why: "not deferrable, it is what arbitrates between two deliveries"},
		{Name: "persistence", Type: "permanent", Why: "an unlogged table is emptied by a crash"},
	}
}

// Classify reads the SQLSTATE of pgx and lib/pq.
func (s Schema) Classify(err error) inbox.ErrorClass {
	state, ok := sqlState(err)
	switch {
	case err == nil:
		return inbox.ClassOther
	case !ok:
		if inbox.IsConnectionError(err) || nothingSent(err) {
			return inbox.ClassUnavailable
		}
		return inbox.ClassOther
	}

	switch state {
	case "23505":
		return inbox.ClassDuplicate
	case "40001", "40P01", "40002":
		return inbox.ClassConflict
	case "55P03":
		return inbox.ClassLockTimeout
	case "25P02":
		return inbox.ClassAborted
	case "25006", // read only: a standby, or a primary that is being demoted
		"25P03", "25P04", // idle_in_transaction_session_timeout, transaction_timeout
		"57014",          // statement_timeout, pg_cancel_backend
		"0A000",          // a cached plan whose table was altered
		"26000", "42P05", // prepared statements behind a pooler
		"40003", "55006", "72000":
		return inbox.ClassUnavailable
	}
	switch state[:2] {
	case "08", "28", "53", "57", "58", "XX": // connection, authentication, resources, operator intervention, I/O, internal
		return inbox.ClassUnavailable
	}
	return inbox.ClassOther
}

// ClassifyCommit knows the errors after which PostgreSQL has certainly rolled back.
func (s Schema) ClassifyCommit(err error) inbox.CommitClass {
	if errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pq.ErrInFailedTransaction) || nothingSent(err) {
		return inbox.CommitLost
	}
	state, ok := sqlState(err)
	if !ok {
		return inbox.CommitUncertain
	}
	switch state {
	case "40001", "40P01", "40002":
		return inbox.CommitConflict
	case "25P02":
		return inbox.CommitLost
	}
	switch state[:2] {
	case "23", "44", "P0": // deferred constraints and triggers, which run before the commit is written
		return inbox.CommitFailed
	}
	return inbox.CommitUncertain
}

// nothingSent tells pgx's errors of a connection that was closed before the statement was sent.
func nothingSent(err error) bool {
	var connErr interface{ SafeToRetry() bool }
	return errors.As(err, &connErr) && connErr.SafeToRetry()
}

// sqlState returns the five characters of a server's error.
func sqlState(err error) (string, bool) {
	var withState interface{ SQLState() string }
	if !errors.As(err, &withState) {
		return "", false
	}
	state := withState.SQLState()
	return state, len(state) == 5
}
