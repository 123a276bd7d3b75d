// Package mysql is the inbox's dialect for MySQL 8.0 and newer and MariaDB 10.6 and newer, with go-sql-driver/mysql.
//
// Identities are VARBINARY, because collations fold case and pad blanks. Every statement of the Inbox is a text without parameters: one
// round trip with every DSN, and independent of sql_mode, clientFoundRows, interpolateParams and parseTime.
//
// Recommended in the DSN: readTimeout, because the driver ignores contexts in COMMIT; innodb_lock_wait_timeout a little
// below the Inbox's WaitTimeout, so that the server ends a long wait instead of the client closing the connection.
//
// Leave interpolateParams off in a pool that also writes watermill-sql's outbox: the driver then sends its JSON columns as binary strings, which MySQL, not
// MariaDB, refuses with error 3144, so that every outgoing message fails.
//
// InnoDB ends the whole transaction on a deadlock (error 1213), and with autocommit on, the statements after it are committed one by one.
// The Inbox notices that before it commits, and so costs one more round trip per message; what a handler wrote after an error that
// it swallowed may stay. A pool of its own with autocommit=0 in the DSN closes that gap too. A DDL statement in a handler commits
// the transaction; nothing can prevent that.
//
// Close the rows of a query before the next statement and before the handler returns: the driver has one result at a time on a connection, and answers
// whatever comes next with "busy buffer" in its log and driver.ErrBadConn, which looks like a lost connection. The message is nacked and tried again.
package mysql

import (
	"database/sql"
	_ "embed"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/go-sql-driver/mysql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

// maxIdentifier is the length of names in characters.
const maxIdentifier = 64

//go:embed schema.sql
var ddl string

var (
	_ inbox.Schema             = Schema{}
	_ inbox.TransactionChecker = Schema{}
	_ inbox.NoWaitInserter     = Schema{}
	_ inbox.IsolationLimiter   = Schema{}
)

// Schema is the dialect for MySQL and MariaDB. The zero value is ready to use with both. It holds no state and is safe for concurrent use.
type Schema struct {
	// MessagesTable is the table of identities, optionally qualified with a database ("app.inbox_messages").
	// Default: inbox_messages.
	MessagesTable string

	// PendingTable and OutgoingTable are the tables of package deferred. Defaults: inbox_pending, inbox_outgoing.
	PendingTable, OutgoingTable string

	// MariaDB tells that the server is MariaDB, which spares NoWait a round trip. Default: false, works with both.
	MariaDB bool
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
	return "`" + strings.ReplaceAll(name, ".", "`.`") + "`"
}

// Validate reports table names that cannot be used.
func (s Schema) Validate() error {
	var errs []error
	for _, name := range []string{s.name(), s.queueName(deferred.Pending), s.queueName(deferred.Outgoing)} {
		_, err := inbox.QuoteTable(name, "`", maxIdentifier)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// DDL returns the script that creates the table.
func (s Schema) DDL() string {
	return strings.ReplaceAll(ddl, "{{table}}", s.Table())
}

// SchemaInitializingQueries returns DDL, which MySQL makes safe to run by many at once.
func (s Schema) SchemaInitializingQueries() []wsql.Query {
	return []wsql.Query{{Query: s.DDL()}}
}

// InsertQuery waits for a transaction that holds the key, then inserts a row or, if that transaction has committed, fails with error 1062.
// It does not use INSERT IGNORE, which hides other errors, nor an upsert, whose count of rows depends on clientFoundRows.
func (s Schema) InsertQuery(row inbox.Row) wsql.Query {
	return s.insert("", row)
}

// insert builds the text by hand, because it runs for every message.
func (s Schema) insert(prefix string, row inbox.Row) wsql.Query {
	b := make([]byte, 0, len(prefix)+192+2*(len(row.Consumer)+len(row.Producer)+len(row.ID)+len(row.Fingerprint)))
	b = append(b, prefix...)
	b = append(b, "INSERT INTO "...)
	b = append(b, s.Table()...)
	b = append(b, " (consumer, producer, message_id, fingerprint, token, processed_at) VALUES ("...)
	for _, value := range []string{row.Consumer, row.Producer, row.ID, row.Fingerprint} {
		b = appendBinary(b, value)
		b = append(b, ',')
	}
	b = strconv.AppendUint(b, row.Token, 10)
	b = append(b, ",UTC_TIMESTAMP())"...)
	return wsql.Query{Query: string(b)}
}

func appendBinary(b []byte, value string) []byte {
	b = append(b, "X'"...)
	b = hex.AppendEncode(b, []byte(value))
	return append(b, '\'')
}

func (s Schema) where(row inbox.Row) string {
	b := make([]byte, 0, 64+2*(len(row.Consumer)+len(row.Producer)+len(row.ID)))
	b = append(b, " WHERE consumer = "...)
	b = appendBinary(b, row.Consumer)
	b = append(b, " AND producer = "...)
	b = appendBinary(b, row.Producer)
	b = append(b, " AND message_id = "...)
	b = appendBinary(b, row.ID)
	return string(b)
}

// SelectQuery locks the row, so that it reads the newest version at every isolation level.
func (s Schema) SelectQuery(row inbox.Row) wsql.Query {
	return wsql.Query{
		Query: "SELECT HEX(fingerprint), TIMESTAMPDIFF(SECOND, processed_at, UTC_TIMESTAMP()) FROM " + s.Table() + s.where(row) + " LOCK IN SHARE MODE",
	}
}

// TransactionCheckQuery yields a row if the row of this attempt is there. Another worker's row of the same key has another token.
func (s Schema) TransactionCheckQuery(row inbox.Row) wsql.Query {
	return wsql.Query{
		Query: "SELECT 1 FROM " + s.Table() + s.where(row) + " AND token = " + strconv.FormatUint(row.Token, 10),
	}
}

// CommitReportsLoss is false: COMMIT without a transaction succeeds.
func (s Schema) CommitReportsLoss() bool { return false }

// NoWaitQueries asks first whether the key is held, because the least innodb_lock_wait_timeout of MySQL is one second. Two deliveries
// that both find the key free may still wait for each other in the insert. MariaDB knows an insert that does not wait.
func (s Schema) NoWaitQueries(row inbox.Row) (probe, insert wsql.Query) {
	if s.MariaDB {
		return wsql.Query{}, s.insert("SET STATEMENT innodb_lock_wait_timeout=0 FOR ", row)
	}
	return wsql.Query{Query: "SELECT 1 FROM " + s.Table() + s.where(row) + " FOR UPDATE NOWAIT"}, s.InsertQuery(row)
}

// NoWaitReadCommitted is true with the probe, which would lock the gap around a new key at higher levels.
func (s Schema) NoWaitReadCommitted() bool { return !s.MariaDB }

// Isolations are the four levels of the SQL standard.
func (s Schema) Isolations() []sql.IsolationLevel {
	return []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
}

// DescribeQuery reads information_schema, which shows the tables that the user may use.
func (s Schema) DescribeQuery() wsql.Query { return describe(s.name()) }

func describe(name string) wsql.Query {
	database, table := "DATABASE()", name
	if before, after, qualified := strings.Cut(name, "."); qualified {
		database, table = "'"+before+"'", after
	}
	of := " WHERE table_schema = " + database + " AND table_name = '" + table + "'"
	return wsql.Query{
		Query: "SELECT column_name, CONCAT(data_type, IF(data_type = 'varbinary', CONCAT('(', character_maximum_length, ')'), '')," +
			" IF(column_type LIKE '%unsigned%', ' unsigned', ''), IF(is_nullable = 'NO', ' not null', ''))" +
			" FROM information_schema.columns" + of +
			" UNION ALL SELECT 'primary key', GROUP_CONCAT(column_name, IF(sub_part IS NULL, '', CONCAT('(', sub_part, ')')) ORDER BY seq_in_index)" +
			" FROM information_schema.statistics" + of + " AND index_name = 'PRIMARY' GROUP BY table_name" +
			" UNION ALL SELECT 'engine', engine FROM information_schema.tables" + of,
	}
}

// Columns describes the table that DDL creates.
func (s Schema) Columns() []inbox.Column {
	const exact = "identities are compared as bytes and never truncated"
	return []inbox.Column{
		{Name: "consumer", Type: "varbinary(255) not null", Why: exact},
		{Name: "producer", Type: "varbinary(512) not null", Why: exact},
		{Name: "message_id", Type: "varbinary(512) not null", Why: exact},
		{Name: "fingerprint", Type: "varbinary(128) not null", Why: "it holds the sum of the content"},
		{Name: "token", Type: "bigint unsigned not null", Why: "it tells the row of an attempt from another's"},
		{Name: "processed_at", Type: "datetime not null", Why: "retention reads it"},
		{Name: "primary key", Type: "consumer,producer,message_id", Why: "it is what arbitrates between two deliveries"},
		{Name: "engine", Type: "InnoDB", Why: "only InnoDB has transactions"},
	}
}

// Error numbers of MySQL and MariaDB.
const (
	errDuplicateEntry     = 1062
	errDeadlock           = 1213
	errLockWaitTimeout    = 1205
	errLockNoWait         = 3572
	errCheckRead          = 1020 // MariaDB with innodb_snapshot_isolation
	errTableDefChanged    = 1412
	errDuplicateEntryName = 1586
)

// unavailable lists what the server says when it did not do its work.
var unavailable = map[uint16]bool{
	1021: true,                         // disk full
	1026: true, 1028: true, 1030: true, // errors of files and of the storage engine
	1114: true,                         // table is full
	1119: true,                         // stack overrun
	1135: true,                         // cannot create a thread
	1243: true, 1461: true, 1615: true, // prepared statements: unknown, too many, to be prepared again
	1637: true,                         // too many transactions
	3168: true, 3169: true, 3170: true, // server is not available, session was killed, memory of a query
	1037: true,                         // out of memory
	1038: true,                         // out of sort memory
	1040: true,                         // too many connections
	1041: true,                         // out of resources
	1042: true,                         // cannot get host name
	1043: true,                         // bad handshake
	1053: true,                         // server shutdown in progress
	1077: true, 1078: true, 1079: true, // shutdown
	1129: true,             // host is blocked
	1152: true, 1184: true, // aborting connection
	1156: true, 1157: true, 1158: true, 1159: true, 1160: true, 1161: true, // network errors
	1180: true,             // error during COMMIT
	1203: true,             // too many user connections
	1206: true,             // lock table full
	1226: true,             // user resource limit
	1290: true,             // read only
	1317: true,             // query interrupted
	1836: true,             // read only mode
	1792: true,             // read-only transaction
	1927: true,             // connection killed (MariaDB)
	1969: true,             // statement timeout (MariaDB)
	2006: true, 2013: true, // server gone, connection lost
	3024: true,             // statement timeout (MySQL)
	3100: true, 3101: true, // group replication
	4031: true, // disconnected for inactivity
}

// Classify reads the number of a *mysql.MySQLError.
func (s Schema) Classify(err error) inbox.ErrorClass {
	var serverErr *mysql.MySQLError
	if !errors.As(err, &serverErr) {
		if err != nil && (errors.Is(err, mysql.ErrInvalidConn) || inbox.IsConnectionError(err)) {
			return inbox.ClassUnavailable
		}
		return inbox.ClassOther
	}
	switch serverErr.Number {
	case errDuplicateEntry, errDuplicateEntryName:
		return inbox.ClassDuplicate
	case errDeadlock, errCheckRead, errTableDefChanged:
		return inbox.ClassConflict
	case errLockWaitTimeout, errLockNoWait:
		return inbox.ClassLockTimeout
	}
	if unavailable[serverErr.Number] {
		return inbox.ClassUnavailable
	}
	return inbox.ClassOther
}

// ClassifyCommit knows the conflicts that Galera and group replication report at COMMIT, after which nothing is committed.
func (s Schema) ClassifyCommit(err error) inbox.CommitClass {
	if s.Classify(err) == inbox.ClassConflict {
		return inbox.CommitConflict
	}
	return inbox.CommitUncertain
}
