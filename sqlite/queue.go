package sqlite

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

var _ deferred.Dialect = Schema{}

func (s Schema) queueName(queue deferred.Queue) string {
	return queue.TableName(s.PendingTable, s.OutgoingTable)
}

// QueueTable returns the quoted name of a table of waiting messages.
func (s Schema) QueueTable(queue deferred.Queue) string { return quoted(s.queueName(queue)) }

// QueueDDL returns the script that creates a table of waiting messages. An index is named with its database and names its table without.
func (s Schema) QueueDDL(queue deferred.Queue) string {
	name := s.queueName(queue)
	relation := name[strings.LastIndex(name, ".")+1:]
	purpose, unique := "produced, to be relayed", ""
	if queue == deferred.Pending {
		purpose = "received, to be processed"
		unique = "CREATE UNIQUE INDEX IF NOT EXISTS " + quoted(name+"_identity") + " ON " + quoted(relation) + " (consumer, topic, producer, message_id);"
	}
	return strings.NewReplacer(
		"{{unique}}", unique,
		"{{purpose}}", purpose,
		"{{index_due}}", quoted(name+"_due"),
		"{{index_key}}", quoted(name+"_key"),
		"{{index_claimed}}", quoted(name+"_claimed"),
		"{{relation}}", quoted(relation),
		"{{table}}", quoted(name),
	).Replace(queueDDL)
}

// QueueInitializingQueries returns DDL.
func (s Schema) QueueInitializingQueries(queue deferred.Queue) []wsql.Query {
	return []wsql.Query{{Query: s.QueueDDL(queue)}}
}

// QueueDescribeQuery lists the columns.
func (s Schema) QueueDescribeQuery(queue deferred.Queue) wsql.Query {
	return describe(s.queueName(queue))
}

// QueueColumns describes the table that QueueDDL creates.
func (s Schema) QueueColumns(queue deferred.Queue) []inbox.Column {
	columns := []inbox.Column{{Name: "seq", Type: "integer key 1", Why: "it is the order of reception"}}
	for _, name := range []string{"consumer", "topic", "producer", "message_id", "fingerprint", "ordering_key", "uuid", "metadata", "payload", "reason", "last_error"} {
		columns = append(columns, inbox.Column{Name: name, Type: "blob not null", Why: "messages come back byte for byte"})
	}
	for _, name := range []string{"reception", "received_at", "state", "due_at", "token", "attempts"} {
		columns = append(columns, inbox.Column{Name: name, Type: "integer not null", Why: "claims need it"})
	}
	return columns
}

// AppendBytes appends a hexadecimal literal.
func (s Schema) AppendBytes(statement []byte, value string) []byte {
	return appendBlob(statement, value)
}

// RowList is of VALUES.
func (s Schema) RowList() (open, separator, end string) { return "VALUES (", "), (", ")" }

// Now is the host's clock, to the millisecond.
func (s Schema) Now() string {
	return "(CAST(strftime('%s', 'now') AS INTEGER) * 1000000 + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000)"
}

// IgnoreDuplicates leaves out rows whose key is there.
func (s Schema) IgnoreDuplicates() string { return " ON CONFLICT DO NOTHING" }

// SkipLocked is empty: there is one writer.
func (s Schema) SkipLocked() string { return "" }

// DueIndex is not needed: there are no locks of rows.
func (s Schema) DueIndex() string { return "" }

// ClaimFirst makes the transaction the writer: one that reads first and then writes gets BUSY at once if another has written meanwhile.
func (s Schema) ClaimFirst(queue deferred.Queue) wsql.Query {
	return wsql.Query{Query: "UPDATE " + s.QueueTable(queue) + " SET state = state WHERE seq = 0"}
}

// QueueTxOptions are the default, the only ones that SQLite's drivers know.
func (s Schema) QueueTxOptions() *sql.TxOptions { return nil }

// OneWriter is true.
func (s Schema) OneWriter() bool { return true }
