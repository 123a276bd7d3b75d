package main

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// locked is a transaction that stays open until a test has seen enough.
type locked struct{ *sql.Tx }

// lock runs a statement in a transaction, which ends at the latest with the test, before its database goes.
func (db testDatabase) lock(t *testing.T, statement string) locked {
	t.Helper()
	tx, err := db.admin.Begin()
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.Exec(statement)
	require.NoError(t, err)
	return locked{tx}
}

func (l locked) rollback(t *testing.T) {
	t.Helper()
	require.NoError(t, l.Rollback())
}

// nth is the number of the n-th message. Numbers have gaps.
func (db testDatabase) nth(t *testing.T, n int) (number int64) {
	t.Helper()
	require.NoError(t, db.admin.QueryRow(fmt.Sprintf("SELECT seq FROM inbox_pending ORDER BY seq LIMIT 1 OFFSET %d", n-1)).Scan(&number))
	return number
}
