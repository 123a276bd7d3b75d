package databases

import (
	"context"
	"database/sql"
	"strings"
	"sync"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
)

// Recorder is a pool that remembers statements, and may hold a COMMIT.
type Recorder struct {
	wsql.Beginner
	BeforeCommit func(statements []string) // of the transaction; nil: nothing

	mu         sync.Mutex
	statements []string
}

func (r *Recorder) record(statement string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statements = append(r.statements, statement)
}

// With returns the recorded statements that have all of the texts in them.
func (r *Recorder) With(texts ...string) (found []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
statements:
	for _, statement := range r.statements {
		for _, text := range texts {
			if !strings.Contains(statement, text) {
				continue statements
			}
		}
		found = append(found, statement)
	}
	return found
}

// BeginTx is for the code under test.
func (r *Recorder) BeginTx(ctx context.Context, options *sql.TxOptions) (wsql.Tx, error) {
	tx, err := r.Beginner.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return &recordedTx{Tx: tx, recorder: r}, nil
}

type recordedTx struct {
	wsql.Tx
	recorder   *Recorder
	statements []string
}

func (tx *recordedTx) record(statement string) {
	tx.statements = append(tx.statements, statement)
	tx.recorder.record(statement)
}

func (tx *recordedTx) ExecContext(ctx context.Context, statement string, args ...any) (wsql.Result, error) {
	tx.record(statement)
	return tx.Tx.ExecContext(ctx, statement, args...)
}

func (tx *recordedTx) QueryContext(ctx context.Context, statement string, args ...any) (wsql.Rows, error) {
	tx.record(statement)
	return tx.Tx.QueryContext(ctx, statement, args...)
}

func (tx *recordedTx) Commit() error {
	if tx.recorder.BeforeCommit != nil {
		tx.recorder.BeforeCommit(tx.statements)
	}
	return tx.Tx.Commit()
}
