// Package sqlite is the inbox's dialect for SQLite 3.24 and newer, with the drivers modernc.org/sqlite and mattn/go-sqlite3, and the
// schema with which watermill-sql's Publisher and Subscriber work on SQLite.
//
// SQLite has one writer at a time: the whole transaction of a message, its handler included, runs alone. Use WAL mode and a busy timeout,
// and let transactions begin as writers if handlers may open transactions of their own:
//
//	modernc.org/sqlite:  file:app.db?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate
//	mattn/go-sqlite3:    file:app.db?_journal_mode=WAL&_busy_timeout=5000&_txlock=immediate
//
// In rollback-journal mode a COMMIT can fail because others read; modernc.org/sqlite before 1.46 then puts the connection back into the
// pool with its transaction open. WAL has no such failures.
//
// Identities are BLOBs, so any bytes are stored and compared exactly. To compare them by hand: WHERE message_id = CAST('E-42' AS BLOB).
//
// The clock is the host's.
package sqlite

import (
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

// maxIdentifier is not SQLite's limit, it has none, but that of the other dialects.
const maxIdentifier = 63

//go:embed schema.sql
var ddl string

var (
	_ inbox.Schema             = Schema{}
	_ inbox.TransactionChecker = Schema{}
)

// Schema is the dialect for SQLite. The zero value is ready to use. It holds no state and is safe for concurrent use.
type Schema struct {
	// MessagesTable is the table of identities, optionally qualified with an attached database. Default: inbox_messages.
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
	var errs []error
	for _, name := range []string{s.name(), s.queueName(deferred.Pending), s.queueName(deferred.Outgoing)} {
		errs = append(errs, validateName(name))
	}
	return errors.Join(errs...)
}

func validateName(name string) error {
	if _, err := inbox.QuoteTable(name, `"`, maxIdentifier); err != nil {
		return err
	}
	database, table := split(name)
	switch {
	case strings.HasPrefix(strings.ToLower(table), "sqlite_"):
		return fmt.Errorf("table name %q: SQLite keeps names that begin with sqlite_ for itself", name)
	case strings.EqualFold(database, "temp"):
		return fmt.Errorf("table name %q: a temporary table ends with its connection, and the identities with it", name)
	}
	return nil
}

// split returns the database, main if the name has none, and the table.
func split(name string) (database, table string) {
	if database, table, qualified := strings.Cut(name, "."); qualified {
		return database, table
	}
	return "main", name
}

// DDL returns the script that creates the table.
func (s Schema) DDL() string {
	return strings.ReplaceAll(ddl, "{{table}}", s.Table())
}

// SchemaInitializingQueries returns DDL. Instances that run it at once wait for each other, as for any write.
func (s Schema) SchemaInitializingQueries() []wsql.Query {
	return []wsql.Query{{Query: s.DDL()}}
}

// InsertQuery makes the transaction the one writer, then inserts a row or, if the key is there, none.
func (s Schema) InsertQuery(row inbox.Row) wsql.Query {
	b := make([]byte, 0, 192+2*(len(row.Consumer)+len(row.Producer)+len(row.ID)+len(row.Fingerprint)))
	b = append(b, "INSERT INTO "...)
	b = append(b, s.Table()...)
	b = append(b, " (consumer, producer, message_id, fingerprint, token, processed_at) VALUES ("...)
	for _, value := range []string{row.Consumer, row.Producer, row.ID, row.Fingerprint} {
		b = appendBlob(b, value)
		b = append(b, ',')
	}
	b = strconv.AppendInt(b, storedToken(row), 10)
	b = append(b, ",CAST(strftime('%s', 'now') AS INTEGER)) ON CONFLICT DO NOTHING"...)
	return wsql.Query{Query: string(b)}
}

func appendBlob(b []byte, value string) []byte {
	b = append(b, "x'"...)
	b = hex.AppendEncode(b, []byte(value))
	return append(b, '\'')
}

// storedToken fits the token into SQLite's signed integer.
func storedToken(row inbox.Row) int64 { return int64(row.Token >> 1) }

func (s Schema) where(row inbox.Row) string {
	b := make([]byte, 0, 64+2*(len(row.Consumer)+len(row.Producer)+len(row.ID)))
	b = append(b, " WHERE consumer = "...)
	b = appendBlob(b, row.Consumer)
	b = append(b, " AND producer = "...)
	b = appendBlob(b, row.Producer)
	b = append(b, " AND message_id = "...)
	b = appendBlob(b, row.ID)
	return string(b)
}

// SelectQuery reads the row.
func (s Schema) SelectQuery(row inbox.Row) wsql.Query {
	return wsql.Query{
		Query: "SELECT hex(fingerprint), CAST(strftime('%s', 'now') AS INTEGER) - processed_at FROM " + s.Table() + s.where(row),
	}
}

// TransactionCheckQuery yields a row if the row of this attempt is there.
func (s Schema) TransactionCheckQuery(row inbox.Row) wsql.Query {
	return wsql.Query{
		Query: "SELECT 1 FROM " + s.Table() + s.where(row) + " AND token = " + strconv.FormatInt(storedToken(row), 10),
	}
}

// CommitReportsLoss is true: COMMIT without a transaction is an error.
func (s Schema) CommitReportsLoss() bool { return true }

// DescribeQuery lists the columns, each with its place in the primary key.
func (s Schema) DescribeQuery() wsql.Query { return describe(s.name()) }

func describe(name string) wsql.Query {
	database, table := split(name)
	return wsql.Query{
		Query: `SELECT name, lower(type) || CASE WHEN "notnull" THEN ' not null' ELSE '' END || CASE WHEN pk > 0 THEN ' key ' || pk ELSE '' END
			FROM pragma_table_info('` + table + `', '` + database + `')`,
	}
}

// Columns describes the table that DDL creates.
func (s Schema) Columns() []inbox.Column {
	const exact = "identities are compared as bytes, and the primary key is what arbitrates between two deliveries"
	return []inbox.Column{
		{Name: "consumer", Type: "blob not null key 1", Why: exact},
		{Name: "producer", Type: "blob not null key 2", Why: exact},
		{Name: "message_id", Type: "blob not null key 3", Why: exact},
		{Name: "fingerprint", Type: "blob not null", Why: "it holds the sum of the content"},
		{Name: "token", Type: "integer not null", Why: "it tells the row of an attempt from another's"},
		{Name: "processed_at", Type: "integer not null", Why: "retention reads it"},
	}
}

// Primary result codes of SQLite.
const (
	codeError      = 1
	codePerm       = 3
	codeBusy       = 5
	codeLocked     = 6
	codeNoMem      = 7
	codeReadOnly   = 8
	codeInterrupt  = 9
	codeIOErr      = 10
	codeCorrupt    = 11
	codeFull       = 13
	codeCantOpen   = 14
	codeProtocol   = 15
	codeSchema     = 17
	codeConstraint = 19

	codeConstraintPrimaryKey = 1555
	codeConstraintUnique     = 2067
)

// Classify reads the result code of modernc.org/sqlite and mattn/go-sqlite3.
func (s Schema) Classify(err error) inbox.ErrorClass {
	code, ok := resultCode(err)
	if !ok {
		if err != nil && inbox.IsConnectionError(err) {
			return inbox.ClassUnavailable
		}
		return inbox.ClassOther
	}
	switch code {
	case codeConstraintPrimaryKey, codeConstraintUnique:
		return inbox.ClassDuplicate
	}
	switch code & 0xff {
	case codeBusy, codeLocked, codeSchema, codeProtocol:
		return inbox.ClassConflict
	case codePerm, codeNoMem, codeReadOnly, codeInterrupt, codeIOErr, codeCorrupt, codeFull, codeCantOpen:
		return inbox.ClassUnavailable
	}
	return inbox.ClassOther
}

// ClassifyCommit knows that SQLite has no network between it and its answer.
func (s Schema) ClassifyCommit(err error) inbox.CommitClass {
	code, _ := resultCode(err)
	switch code & 0xff {
	case codeError: // cannot commit, no transaction is active
		return inbox.CommitLost
	case codeBusy, codeLocked:
		return inbox.CommitConflict
	case codeConstraint: // deferred foreign keys
		return inbox.CommitFailed
	}
	return inbox.CommitUncertain
}

// resultCode returns the extended result code of a driver's error. modernc.org/sqlite has it as a method; mattn/go-sqlite3 has it as a field of a
// struct that only cgo builds can import, so it is read by reflection.
func resultCode(err error) (int, bool) {
	if err == nil {
		return 0, false
	}
	if isDriverError(err) {
		if withCode, ok := err.(interface{ Code() int }); ok { //nolint:errorlint // see below
			return withCode.Code(), true
		}
		if code, ok := codeField(err); ok {
			return code, true
		}
	}
	switch err := err.(type) { //nolint:errorlint // this walks the chain as errors.As does
	case interface{ Unwrap() error }:
		return resultCode(err.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range err.Unwrap() {
			if code, ok := resultCode(one); ok {
				return code, true
			}
		}
	}
	return 0, false
}

// isDriverError tells the errors of SQLite drivers from those of a handler that have a code, too: an HTTP client's, a payment provider's.
func isDriverError(err error) bool {
	errType := reflect.TypeOf(err)
	if errType.Kind() == reflect.Pointer {
		errType = errType.Elem()
	}
	return strings.Contains(errType.PkgPath(), "sqlite")
}

func codeField(err error) (int, bool) {
	value := reflect.ValueOf(err)
	if value.Kind() == reflect.Pointer {
		value = value.Elem()
	}
	if value.Kind() != reflect.Struct {
		return 0, false
	}
	extended, code := value.FieldByName("ExtendedCode"), value.FieldByName("Code")
	if !extended.IsValid() || !extended.CanInt() || !code.IsValid() || !code.CanInt() {
		return 0, false
	}
	if extended.Int() != 0 {
		return int(extended.Int()), true
	}
	return int(code.Int()), true
}
