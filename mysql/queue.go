package mysql

import (
	"database/sql"
	_ "embed"
	"fmt"
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

// QueueDDL returns the script that creates a table of waiting messages.
func (s Schema) QueueDDL(queue deferred.Queue) string {
	purpose, unique := "produced, to be relayed", ""
	if queue == deferred.Pending {
		purpose, unique = "received, to be processed", ",\n    UNIQUE INDEX `identity` (`consumer`, `topic`, `producer`, `message_id`)"
	}
	return strings.NewReplacer("{{unique}}", unique, "{{purpose}}", purpose, "{{table}}", s.QueueTable(queue)).Replace(queueDDL)
}

// QueueInitializingQueries returns DDL, which MySQL makes safe to run by many at once.
func (s Schema) QueueInitializingQueries(queue deferred.Queue) []wsql.Query {
	return []wsql.Query{{Query: s.QueueDDL(queue)}}
}

// QueueDescribeQuery reads information_schema.
func (s Schema) QueueDescribeQuery(queue deferred.Queue) wsql.Query {
	return describe(s.queueName(queue))
}

// QueueColumns describes the table that QueueDDL creates.
func (s Schema) QueueColumns(queue deferred.Queue) []inbox.Column {
	const exact = "messages come back byte for byte"
	columns := []inbox.Column{
		{Name: "primary key", Type: "seq", Why: "it is the order of reception"},
		{Name: "engine", Type: "InnoDB", Why: "only InnoDB has transactions"},
		{Name: "state", Type: "smallint not null", Why: "claims need it"},
		{Name: "attempts", Type: "int not null", Why: "attempts are counted"},
		{Name: "payload", Type: "longblob not null", Why: exact},
		{Name: "metadata", Type: "longblob not null", Why: exact},
		{Name: "last_error", Type: "varbinary(2048) not null", Why: "operators read it"},
	}
	for name, size := range map[string]int{
		"consumer": inbox.MaxConsumerLength, "topic": 255, "producer": inbox.MaxProducerLength, "message_id": inbox.MaxIDLength,
		"ordering_key": 512, "uuid": 513, "fingerprint": 128,
	} {
		columns = append(columns, inbox.Column{Name: name, Type: fmt.Sprintf("varbinary(%d) not null", size), Why: exact})
	}
	for _, name := range []string{"seq", "reception", "received_at", "due_at", "token"} {
		columns = append(columns, inbox.Column{Name: name, Type: "bigint not null", Why: "claims need it"})
	}
	return columns
}

// AppendBytes appends a hexadecimal literal.
func (s Schema) AppendBytes(statement []byte, value string) []byte {
	return appendBinary(statement, value)
}

// RowList is of SELECTs, because MySQL and MariaDB do not write VALUES in the same way.
func (s Schema) RowList() (open, separator, end string) { return "SELECT ", " UNION ALL SELECT ", "" }

// Now does not depend on the time zone of the session.
func (s Schema) Now() string { return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))" }

// IgnoreDuplicates is an update that changes nothing. INSERT IGNORE would hide other errors.
func (s Schema) IgnoreDuplicates() string { return " ON DUPLICATE KEY UPDATE attempts = attempts" }

// SkipLocked locks rows.
func (s Schema) SkipLocked() string { return " FOR UPDATE SKIP LOCKED" }

// DueIndex is forced, because InnoDB locks what it reads: without statistics of a new table it may read and sort all that is due, and would lock the whole
// backlog.
func (s Schema) DueIndex() string { return " FORCE INDEX (`due`)" }

// ClaimFirst is not needed.
func (s Schema) ClaimFirst(deferred.Queue) wsql.Query { return wsql.Query{} }

// QueueTxOptions are READ COMMITTED: the gap locks of REPEATABLE READ make claims block receptions.
func (s Schema) QueueTxOptions() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

// OneWriter is false.
func (s Schema) OneWriter() bool { return false }
