package sqltx

import (
	"context"
	"errors"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
)

// Exec runs a statement and returns how many rows it affected.
func Exec(ctx context.Context, tx wsql.ContextExecutor, query wsql.Query) (int64, error) {
	result, err := tx.ExecContext(ctx, query.Query, query.Args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// QueryRow scans the first row, if there is one, into dest.
func QueryRow(ctx context.Context, tx wsql.ContextExecutor, query wsql.Query, dest ...any) (bool, error) {
	rows, err := tx.QueryContext(ctx, query.Query, query.Args...)
	if err != nil {
		return false, err
	}
	found := rows.Next()
	if found && len(dest) > 0 {
		err = rows.Scan(dest...)
	}
	// Rows must be closed before the next statement of the transaction, and an error that ended Next shows only now.
	closeErr := rows.Close()
	if err := errors.Join(err, rowsErr(rows), closeErr); err != nil {
		return false, err
	}
	return found, nil
}

// Each calls fn for each row, until it fails.
func Each(ctx context.Context, tx wsql.ContextExecutor, query wsql.Query, fn func(scan func(dest ...any) error) error) error {
	rows, err := tx.QueryContext(ctx, query.Query, query.Args...)
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rowsErr(rows), rows.Close())
}

// rowsErr returns the error that ended the iteration. The Rows of watermill-sql do not show it, those they wrap do.
func rowsErr(rows wsql.Rows) error {
	if rows, ok := rows.(interface{ Err() error }); ok {
		return rows.Err()
	}
	return nil
}
