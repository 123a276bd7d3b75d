package postgres

import (
	"database/sql"
	_ "embed"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

//go:embed queue.sql
var queueDDL string

var (
	_ deferred.Dialect     = Schema{}
	_ deferred.SortAvoider = Schema{}
)

// longestIndexSuffix is what an index's name adds to its table's.
const longestIndexSuffix = "_identity"

func (s Schema) queueName(queue deferred.Queue) string {
	return queue.TableName(s.PendingTable, s.OutgoingTable)
}

// QueueTable returns the quoted name of a table of waiting messages.
func (s Schema) QueueTable(queue deferred.Queue) string { return quoted(s.queueName(queue)) }

// QueueDDL returns the script that creates a table of waiting messages.
func (s Schema) QueueDDL(queue deferred.Queue) string {
	name := s.queueName(queue)
	relation := name[strings.LastIndex(name, ".")+1:]
	purpose, unique := "produced, to be relayed", ""
	if queue == deferred.Pending {
		purpose = "received, to be processed"
		unique = "CREATE UNIQUE INDEX IF NOT EXISTS " + quoted(relation+"_identity") + " ON {{table}} (consumer, topic, producer, message_id);"
	}
	return strings.NewReplacer(
		"{{purpose}}", purpose,
		"{{index_due}}", quoted(relation+"_due"),
		"{{index_key}}", quoted(relation+"_key"),
		"{{index_claimed}}", quoted(relation+"_claimed"),
		"{{table}}", quoted(name),
	).Replace(strings.ReplaceAll(queueDDL, "{{unique}}", unique))
}

// QueueInitializingQueries returns DDL behind the lock that SchemaInitializingQueries takes.
func (s Schema) QueueInitializingQueries(queue deferred.Queue) []wsql.Query {
	return []wsql.Query{schemaLock, {Query: s.QueueDDL(queue)}}
}

// QueueDescribeQuery reads the catalog.
func (s Schema) QueueDescribeQuery(queue deferred.Queue) wsql.Query {
	return describe(s.QueueTable(queue))
}

// QueueColumns describes the table that QueueDDL creates.
func (s Schema) QueueColumns(queue deferred.Queue) []inbox.Column {
	columns := []inbox.Column{
		{Name: "primary key", Type: "seq", Why: "it is the order of reception"},
		{Name: "persistence", Type: "permanent", Why: "an unlogged table is emptied by a crash, and the broker was acked"},
	}
	for _, name := range []string{"consumer", "topic", "producer", "message_id", "fingerprint", "ordering_key", "uuid", "metadata", "payload", "reason", "last_error"} {
		columns = append(columns, inbox.Column{Name: name, Type: "bytea not null", Why: "messages come back byte for byte"})
	}
	for _, name := range []string{"seq", "reception", "received_at", "due_at", "token"} {
		columns = append(columns, inbox.Column{Name: name, Type: "bigint not null", Why: "claims need it"})
	}
	return append(columns,
		inbox.Column{Name: "state", Type: "smallint not null", Why: "claims need it"},
		inbox.Column{Name: "attempts", Type: "integer not null", Why: "attempts are counted"},
	)
}

// AppendBytes appends a literal that means the same with standard_conforming_strings on and off.
func (s Schema) AppendBytes(statement []byte, value string) []byte {
	return appendBytea(statement, value)
}

// RowList is of VALUES.
func (s Schema) RowList() (open, separator, end string) { return "VALUES (", "), (", ")" }

// Now is the time at which the server got the statement.
func (s Schema) Now() string { return "(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::bigint" }

// IgnoreDuplicates waits for a transaction that holds the key.
func (s Schema) IgnoreDuplicates() string { return " ON CONFLICT DO NOTHING" }

// SkipLocked locks the rows of the first table only.
func (s Schema) SkipLocked() string { return " FOR UPDATE SKIP LOCKED" }

// DueIndex is not needed: only the rows of the result are locked.
func (s Schema) DueIndex() string { return "" }

// AvoidSort is for plans that are made, and cached, by sessions that saw the table when it was nearly empty, and for tables without statistics. Statements that have to sort
// nevertheless then look so expensive that they would be compiled, which takes longer than they.
func (s Schema) AvoidSort() wsql.Query {
	return wsql.Query{Query: "SELECT set_config('enable_sort', 'off', true), set_config('enable_incremental_sort', 'off', true), set_config('jit', 'off', true)"}
}

// ClaimFirst is not needed.
func (s Schema) ClaimFirst(deferred.Queue) wsql.Query { return wsql.Query{} }

// QueueTxOptions are READ COMMITTED, where a statement sees what was committed before it.
func (s Schema) QueueTxOptions() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

// OneWriter is false.
func (s Schema) OneWriter() bool { return false }
