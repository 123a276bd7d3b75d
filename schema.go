package inbox

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
)

// DefaultMessagesTable is the name of the table of identities when a dialect is given none.
const DefaultMessagesTable = "inbox_messages"

// Limits in bytes of what one identity row can hold, the same on every dialect. Longer values are refused with
// ErrIdentityTooLong before any SQL; nothing is ever truncated.
const (
	MaxConsumerLength = 255
	MaxProducerLength = 512
	MaxIDLength       = 512
)

// Row is what one delivery writes into the table of identities. All strings are opaque bytes.
type Row struct {
	Consumer string
	Producer string
	ID       string

	// Fingerprint is the encoded content fingerprint, empty when there is none.
	Fingerprint string

	// Token is a random number of the attempt. Only dialects that implement TransactionChecker store it.
	Token uint64
}

// Schema is one SQL dialect: its statements and what its errors mean. It runs nothing itself; the Inbox does.
//
// The implementations are postgres.Schema, mysql.Schema and sqlite.Schema. Another dialect is one more
// implementation that passes inboxtest.TestSchema. What a dialect can do beyond this interface it tells with the
// optional interfaces TransactionChecker, NoWaitInserter, IsolationLimiter and PoolTuner.
//
// Implementations must be safe for concurrent use and must not change after New.
type Schema interface {
	// Validate reports mistakes in the dialect's own configuration, such as a table name that cannot be quoted.
	Validate() error

	// Table returns the quoted name of the table of identities.
	Table() string

	// DDL returns the script that creates the tables, for users who keep migrations of their own.
	DDL() string

	// SchemaInitializingQueries returns the statements that create the tables. They are safe to run again and by
	// many instances at once, and run in one transaction where the engine has transactional DDL.
	SchemaInitializingQueries() []wsql.Query

	// InsertQuery returns the statement that inserts the row, and waits while another transaction holds the same
	// key. If a committed row has the key, it either affects no row or fails with an error of ClassDuplicate.
	InsertQuery(row Row) wsql.Query

	// SelectQuery returns the statement that reads the committed row with the key of row:
	// fingerprint (text, hexadecimal, which every driver and protocol returns alike) and age in seconds (integer).
	SelectQuery(row Row) wsql.Query

	// DescribeQuery returns the statement that lists what the live table looks like, one row a column or table
	// property: name, type (both text). It returns no row if the table does not exist.
	DescribeQuery() wsql.Query

	// Columns is what DescribeQuery returns for a table as DDL creates it.
	Columns() []Column

	// Classify tells what an error of any statement but COMMIT means.
	Classify(err error) ErrorClass

	// ClassifyCommit tells what an error of COMMIT means. Anything not known for certain is CommitUncertain.
	ClassifyCommit(err error) CommitClass
}

// Column describes a column or another property of the table for Inbox.Verify.
type Column struct {
	Name string
	Type string

	// Why completes the sentence "… because" for the operator when the live column differs.
	Why string
}

// TransactionChecker is implemented by dialects whose engine can end a transaction so that the statements after it
// run, and are committed, each by itself: InnoDB after a deadlock, SQLite after an interrupt.
type TransactionChecker interface {
	// TransactionCheckQuery returns the statement that yields one row if and only if the row of this very attempt,
	// recognised by its Token, is still there.
	TransactionCheckQuery(row Row) wsql.Query

	// CommitReportsLoss tells whether COMMIT itself fails in that case. The check then runs only before
	// outgoing messages are written.
	CommitReportsLoss() bool
}

// NoWaitInserter is implemented by dialects that can tell at once that another transaction holds a key.
type NoWaitInserter interface {
	// NoWaitQueries returns an optional probe, which fails with ClassLockTimeout when the key is held and yields a
	// row when the key is committed, and the insert, which fails with ClassLockTimeout or affects no row when the
	// key is held.
	NoWaitQueries(row Row) (probe, insert wsql.Query)

	// NoWaitReadCommitted tells that the queries work at READ COMMITTED only.
	NoWaitReadCommitted() bool
}

// IsolationLimiter is implemented by dialects whose drivers fail to begin a transaction at some levels of isolation, so that New can
// refuse those.
type IsolationLimiter interface {
	// Isolations returns the levels that the drivers know, besides the default.
	Isolations() []sql.IsolationLevel
}

// PoolTuner is implemented by dialects that know a faster way to run an Inbox's transactions on some pools.
type PoolTuner interface {
	// TunePool returns what the Inbox uses in place of the schema and the pool. For pools that it does not know these are the same.
	TunePool(db wsql.Beginner) (Schema, wsql.Beginner)
}

// ParameterBinder is implemented by schemas that TunePool returns for pools on which a statement with parameters is cheaper than one text.
type ParameterBinder interface {
	// Placeholder returns what stands for the n-th parameter in a statement, from 1 on.
	Placeholder(n int) string
}

// StatementCommitter is implemented by the transactions (pgx.Tx) of a tuned pool that can send a last statement together with COMMIT.
type StatementCommitter interface {
	// ExecCommit runs a DELETE or UPDATE and commits if it affected a row. If it affected none, or failed (statementErr), nothing is committed, and the
	// transaction is still to be rolled back. Otherwise commitErr is that of COMMIT, as uncertain as any.
	ExecCommit(ctx context.Context, query wsql.Query) (affected bool, statementErr, commitErr error)
}

// ErrorClass is what an error of the database means for an attempt.
type ErrorClass int

const (
	// ClassOther is any error that another attempt would most likely meet again: a violated constraint, a missing
	// table, a syntax error, an error that is not the database's.
	ClassOther ErrorClass = iota

	// ClassDuplicate is a violated unique key. It is evidence only when the insert of the identity reports it.
	ClassDuplicate

	// ClassConflict says that the engine gave up this transaction in favour of another: deadlock, serialization
	// failure, busy. A new transaction may succeed at once.
	ClassConflict

	// ClassLockTimeout says that another transaction held a lock for longer than the statement may wait.
	ClassLockTimeout

	// ClassUnavailable says that the database did not do its work: connection lost, shutdown, statement
	// cancelled, out of resources, read-only after a failover.
	ClassUnavailable

	// ClassAborted says that the statement was refused because the transaction had ended before.
	ClassAborted
)

// CommitClass is what an error of COMMIT says about the transaction.
type CommitClass int

const (
	// CommitUncertain: the transaction may or may not be committed.
	CommitUncertain CommitClass = iota

	// CommitConflict: rolled back in favour of another transaction, a new one may succeed.
	CommitConflict

	// CommitFailed: rolled back for a reason that another attempt would most likely meet again.
	CommitFailed

	// CommitLost: the engine had ended the transaction before COMMIT.
	CommitLost
)

// QuoteTable checks a table name and quotes it for a dialect. The name may be qualified with one schema ("app.inbox").
// Each part is a letter or underscore followed by letters, digits, underscores and dollar signs, at most maxLength
// bytes long. Names are taken exactly as written, so on PostgreSQL their case matters.
func QuoteTable(name, quote string, maxLength int) (string, error) {
	parts := strings.Split(name, ".")
	if len(parts) > 2 {
		return "", fmt.Errorf("table name %q has more than one dot", name)
	}
	for i, part := range parts {
		if !isIdentifier(part) || len(part) > maxLength {
			return "", fmt.Errorf("table name %q: %q is not a letter or underscore followed by up to %d letters, digits, underscores or dollar signs",
				name, part, maxLength-1)
		}
		parts[i] = quote + part + quote
	}
	return strings.Join(parts, "."), nil
}

func isIdentifier(s string) bool {
	for i, r := range []byte(s) {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		digit := r >= '0' && r <= '9' || r == '$'
		if !letter && (i == 0 || !digit) {
			return false
		}
	}
	return s != ""
}
