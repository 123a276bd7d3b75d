package deferred

import (
	"cmp"
	"database/sql"
	"fmt"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
)

// Names of the tables when a dialect is given none.
const (
	DefaultPendingTable  = "inbox_pending"
	DefaultOutgoingTable = "inbox_outgoing"
)

// Queue is one of the two tables that messages wait in.
type Queue int

const (
	// Pending holds received messages until they are processed. An identity is in it once for each consumer and topic.
	Pending Queue = iota

	// Outgoing holds produced messages until they are relayed. Nothing in it is unique.
	Outgoing
)

// TableName returns the name that a dialect's configuration gives the queue's table, or the default.
func (q Queue) TableName(pending, outgoing string) string {
	if q == Outgoing {
		return cmp.Or(outgoing, DefaultOutgoingTable)
	}
	return cmp.Or(pending, DefaultPendingTable)
}

// Dialect is what a SQL dialect knows beyond inbox.Schema for durable queues. It is an optional interface of a Schema; postgres.Schema,
// mysql.Schema and sqlite.Schema have it. It is a set of differences: the statements themselves, the same for all databases, are in
// this package.
//
// Implementations must be safe for concurrent use and must not change.
type Dialect interface {
	inbox.Schema

	// QueueTable returns the quoted name of the table. Validate has refused names that cannot be quoted.
	QueueTable(queue Queue) string

	// QueueDDL returns the script that creates the table, for users who keep migrations of their own.
	QueueDDL(queue Queue) string

	// QueueInitializingQueries returns the statements that create the table. They are safe to run again and by many instances at once.
	QueueInitializingQueries(queue Queue) []wsql.Query

	// QueueDescribeQuery and QueueColumns are for the verification of the live table; see inbox.Schema.
	QueueDescribeQuery(queue Queue) wsql.Query
	QueueColumns(queue Queue) []inbox.Column

	// AppendBytes appends a literal for any bytes.
	AppendBytes(statement []byte, value string) []byte

	// RowList returns what begins, separates and ends a list of rows in a common table expression: VALUES (1, 2), (3, 4), or where an engine
	// knows no such list SELECT 1, 2 UNION ALL SELECT 3, 4.
	RowList() (open, separator, end string)

	// Now is an expression for the database's clock in microseconds since 1970 UTC. It has one value in a statement, at the
	// earliest that of the statement's begin.
	Now() string

	// IgnoreDuplicates ends an INSERT … SELECT so that rows whose key is in the table are left out.
	IgnoreDuplicates() string

	// SkipLocked ends a SELECT so that it locks its rows and leaves out those that are locked. It is empty for engines with
	// one writer, whose transactions start as the writer with ClaimFirst.
	SkipLocked() string

	// DueIndex follows the name of the table in a SELECT that locks the first few messages that are due. It makes an engine that locks all rows that it reads use the
	// index that has them in order. Empty: not needed.
	DueIndex() string

	// ClaimFirst is a statement that changes nothing and makes the transaction the writer. Zero: not needed.
	ClaimFirst(queue Queue) wsql.Query

	// QueueTxOptions are those of all transactions on a queue that are not a handler's. Nil: the default.
	QueueTxOptions() *sql.TxOptions

	// OneWriter tells that only one transaction can write at a time, so that a second message in flight would only wait.
	OneWriter() bool
}

// SortAvoider is an optional interface of a Dialect, for planners that take no hint of an index.
type SortAvoider interface {
	// AvoidSort is a statement after which, until the end of the transaction, rows that an index has in order are read from that index.
	// Without it a planner that knows little of a table may read and sort all messages of a consumer to count a few.
	AvoidSort() wsql.Query
}

// mistake is an error about a field of a configuration, which its text begins with.
func mistake(format string, args ...any) error { return fmt.Errorf(format, args...) }

// dialectOf finds the Dialect of a schema.
func dialectOf(schema inbox.Schema) (Dialect, error) {
	if schema == nil {
		return nil, mistake("Schema is missing: set postgres.Schema{}, mysql.Schema{} or sqlite.Schema{}")
	}
	dialect, ok := schema.(Dialect)
	if !ok {
		return nil, mistake("Schema: %T has no tables for deferred messages: it must implement deferred.Dialect, as postgres.Schema, mysql.Schema and sqlite.Schema do", schema)
	}
	if err := schema.Validate(); err != nil {
		return nil, mistake("Schema: %w", err)
	}
	return dialect, nil
}
