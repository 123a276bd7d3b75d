package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

var (
	_ inbox.PoolTuner          = Schema{}
	_ inbox.ParameterBinder    = pooled{}
	_ inbox.StatementCommitter = (*pipelinedTx)(nil)
)

// TunePool makes transactions on a *pgxpool.Pool send BEGIN together with the insert of the identity, and COMMIT together with the end of a
// claim. Both statements have parameters, so that pgx prepares them once for each connection, or not at all, as the mode of the pool says.
func (s Schema) TunePool(db wsql.Beginner) (inbox.Schema, wsql.Beginner) {
	pool, ok := sqltx.Unwrap(db).(*pgxpool.Pool)
	if !ok {
		return s, db
	}
	tuned := pooled{s, "INSERT INTO " + s.Table() + " (consumer, producer, message_id, fingerprint, processed_at) VALUES ($1, $2, $3, $4, now()) ON CONFLICT DO NOTHING"}
	return tuned, pipeline{db, pool}
}

// pooled is the dialect on a pool of pgx.
type pooled struct {
	Schema
	insertIdentity string
}

// InsertQuery has parameters.
func (s pooled) InsertQuery(row inbox.Row) wsql.Query {
	return wsql.Query{Query: s.insertIdentity, Args: []any{[]byte(row.Consumer), []byte(row.Producer), []byte(row.ID), []byte(row.Fingerprint)}}
}

// Placeholder is of the form $1.
func (s pooled) Placeholder(n int) string { return "$" + strconv.Itoa(n) }

// pipeline begins transactions on a pool of pgx without a word to the server.
type pipeline struct {
	wsql.Beginner
	pool *pgxpool.Pool
}

// BeginTx takes a connection. BEGIN goes with the first statement.
func (p pipeline) BeginTx(ctx context.Context, options *sql.TxOptions) (wsql.Tx, error) {
	begin, err := beginStatement(options)
	if err != nil {
		return nil, err
	}
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return wsql.TxFromPgx(&pipelinedTx{conn: conn, begin: begin}), nil
}

// beginStatement is what wsql.PgxBeginner sends.
func beginStatement(options *sql.TxOptions) (string, error) {
	if options == nil {
		return "begin", nil
	}
	level := options.Isolation
	if level == sql.LevelDefault {
		level = sql.LevelSerializable
	}
	if !slices.Contains(Schema{}.Isolations(), level) {
		return "", fmt.Errorf("isolation level %s is not supported", level)
	}
	mode := "read write"
	if options.ReadOnly {
		mode = "read only"
	}
	return "begin isolation level " + strings.ToLower(level.String()) + " " + mode, nil
}

// pipelinedTx is a transaction of pgx like that of pgxpool, but for when BEGIN and COMMIT are sent. Like that one it is not safe for concurrent use.
type pipelinedTx struct {
	conn   *pgxpool.Conn
	begin  string // empty: sent
	closed bool

	// Tx is a transaction of pgx itself on this connection, once savepoints or large objects are wanted: only pgx can make those.
	pgx.Tx
}

// start sends BEGIN by itself.
func (t *pipelinedTx) start(ctx context.Context) error {
	if t.closed {
		return pgx.ErrTxClosed
	}
	if t.begin == "" {
		return nil
	}
	_, err := t.conn.Exec(ctx, t.begin)
	if err == nil {
		t.begin = ""
	}
	return err
}

// Exec sends BEGIN along with the first statement, if that one has parameters; text without may be more than one statement.
func (t *pipelinedTx) Exec(ctx context.Context, statement string, args ...any) (pgconn.CommandTag, error) {
	if t.closed || t.begin == "" || len(args) == 0 {
		if err := t.start(ctx); err != nil {
			return pgconn.CommandTag{}, err
		}
		return t.conn.Exec(ctx, statement, args...)
	}
	batch := &pgx.Batch{}
	batch.Queue(t.begin)
	batch.Queue(statement, args...)
	t.begin = ""
	results := t.conn.SendBatch(ctx, batch)
	if _, err := results.Exec(); err != nil {
		_ = results.Close()
		return pgconn.CommandTag{}, err
	}
	return lastResult(results)
}

func lastResult(results pgx.BatchResults) (pgconn.CommandTag, error) {
	tag, err := results.Exec()
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return tag, err
}

// byIndex keeps plans that are cached while a table is nearly empty from reading all of it when it has grown. byCost ends that before COMMIT, which
// runs the deferred constraints and triggers of the user.
const (
	byIndex = "set local enable_seqscan = off"
	byCost  = "set local enable_seqscan to default"
)

// divisionByZero is the error of ExecCommit's statement when it affected no row.
const divisionByZero = "22012"

// ExecCommit divides by the number of affected rows, so that the server does not get to COMMIT when that is zero.
func (t *pipelinedTx) ExecCommit(ctx context.Context, query wsql.Query) (affected bool, statementErr, commitErr error) {
	if err := t.start(ctx); err != nil {
		return false, err, nil
	}
	if t.Tx != nil {
		tag, err := t.conn.Exec(ctx, query.Query, query.Args...)
		if err != nil || tag.RowsAffected() == 0 {
			return false, err, nil
		}
		return true, nil, t.Commit(ctx)
	}

	batch := &pgx.Batch{}
	batch.Queue(byIndex)
	batch.Queue("WITH affected AS ("+query.Query+" RETURNING 1) SELECT 1 / count(*) FROM affected", query.Args...)
	batch.Queue(byCost)
	batch.Queue("commit")
	results := t.conn.SendBatch(ctx, batch)
	var err error
	for range batch.Len() - 1 {
		if _, err = results.Exec(); err != nil {
			break
		}
	}
	if err != nil {
		_ = results.Close()
		switch state, ok := sqlState(err); {
		case state == divisionByZero:
			return false, nil, nil
		case ok || nothingSent(err):
			return false, err, nil
		}
		return true, nil, t.end(err) // whether the server got to COMMIT is not known
	}
	return true, nil, t.committed(lastResult(results))
}

// Commit sends COMMIT and gives the connection back.
func (t *pipelinedTx) Commit(ctx context.Context) error {
	if t.closed {
		return pgx.ErrTxClosed
	}
	if t.begin != "" {
		return t.end(nil) // nothing was sent
	}
	if t.Tx != nil {
		return t.end(t.Tx.Commit(ctx))
	}
	return t.committed(t.conn.Exec(ctx, "commit"))
}

// committed ends the transaction with the answer to COMMIT, which is no error for a transaction that PostgreSQL had to roll back.
func (t *pipelinedTx) committed(tag pgconn.CommandTag, err error) error {
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return t.end(err)
}

// Rollback sends ROLLBACK and gives the connection back.
func (t *pipelinedTx) Rollback(ctx context.Context) error {
	switch {
	case t.closed:
		return pgx.ErrTxClosed
	case t.Tx != nil:
		return t.end(t.Tx.Rollback(ctx))
	case t.conn.Conn().PgConn().TxStatus() == 'I':
		// BEGIN was not sent, or was refused, perhaps because the connection is broken. pgx may not know that yet, and the pool would keep it.
		return t.end(t.conn.Conn().Close(ctx))
	}
	_, err := t.conn.Exec(ctx, "rollback")
	return t.end(err)
}

// end gives the connection back to the pool, which keeps it only if no transaction is open on it.
func (t *pipelinedTx) end(err error) error {
	t.closed = true
	t.conn.Release()
	return err
}

// native makes the transaction one of pgx, by a query that is empty.
func (t *pipelinedTx) native(ctx context.Context) (pgx.Tx, error) {
	if t.Tx != nil {
		return t.Tx, nil
	}
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	var err error
	t.Tx, err = t.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: ";"})
	return t.Tx, err
}

// Begin opens a savepoint.
func (t *pipelinedTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.native(ctx)
	if err != nil {
		return nil, err
	}
	return tx.Begin(ctx)
}

// LargeObjects returns those of pgx. If the connection is lost before the first call, using them panics, because pgx lets nobody else make any.
func (t *pipelinedTx) LargeObjects() pgx.LargeObjects {
	tx, err := t.native(context.Background())
	if err != nil {
		return pgx.LargeObjects{}
	}
	return tx.LargeObjects()
}

// CopyFrom is like that of pgx.
func (t *pipelinedTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := t.start(ctx); err != nil {
		return 0, err
	}
	return t.conn.CopyFrom(ctx, table, columns, rows)
}

// SendBatch is like that of pgx.
func (t *pipelinedTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if err := t.start(ctx); err != nil {
		return failedBatch{failedRow: failedRow{err}}
	}
	return t.conn.SendBatch(ctx, batch)
}

// Prepare is like that of pgx.
func (t *pipelinedTx) Prepare(ctx context.Context, name, statement string) (*pgconn.StatementDescription, error) {
	if err := t.start(ctx); err != nil {
		return nil, err
	}
	return t.conn.Conn().Prepare(ctx, name, statement)
}

// Query is like that of pgx.
func (t *pipelinedTx) Query(ctx context.Context, statement string, args ...any) (pgx.Rows, error) {
	if err := t.start(ctx); err != nil {
		return failedRows{failedRow: failedRow{err}}, err
	}
	return t.conn.Query(ctx, statement, args...)
}

// QueryRow is like that of pgx.
func (t *pipelinedTx) QueryRow(ctx context.Context, statement string, args ...any) pgx.Row {
	if err := t.start(ctx); err != nil {
		return failedRow{err}
	}
	return t.conn.QueryRow(ctx, statement, args...)
}

// Conn is nil after the end of the transaction.
func (t *pipelinedTx) Conn() *pgx.Conn {
	if t.closed {
		return nil
	}
	return t.conn.Conn()
}

// failedRow, failedRows and failedBatch are results of a transaction that has ended. They embed the interfaces of pgx, to which its newer versions
// add methods.
type failedRow struct{ err error }

func (f failedRow) Scan(...any) error { return f.err }

type failedRows struct {
	pgx.Rows
	failedRow
}

func (f failedRows) Scan(...any) error                            { return f.err }
func (f failedRows) Close()                                       {}
func (f failedRows) Err() error                                   { return f.err }
func (f failedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (f failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (f failedRows) Next() bool                                   { return false }
func (f failedRows) Values() ([]any, error)                       { return nil, f.err }
func (f failedRows) RawValues() [][]byte                          { return nil }
func (f failedRows) Conn() *pgx.Conn                              { return nil }

type failedBatch struct {
	pgx.BatchResults
	failedRow
}

func (f failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }
func (f failedBatch) Query() (pgx.Rows, error)         { return failedRows{failedRow: f.failedRow}, f.err }
func (f failedBatch) QueryRow() pgx.Row                { return f.failedRow }
func (f failedBatch) Close() error                     { return f.err }
