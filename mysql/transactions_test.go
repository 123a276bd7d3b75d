package mysql_test

import (
	"context"
	"database/sql"
	"regexp"
	"strings"
	"testing"

	"github.com/watermill-inbox/inbox/inboxtest"
)

// openInMySQL and openInMariaDB count the open transactions of the sessions that use a database, those that only read too. They do not ask
// information_schema.innodb_trx, which InnoDB refreshes only if nobody on the server has read it for 100 ms.

func openInMySQL(ctx context.Context, root *sql.DB, namespace string) (open int, err error) {
	err = root.QueryRowContext(ctx, `SELECT COUNT(*) FROM performance_schema.events_transactions_current
		JOIN performance_schema.threads USING (thread_id) WHERE state = 'ACTIVE' AND processlist_db = ?`, namespace).Scan(&open)
	return open, err
}

// activeSession finds the id of the session of an open transaction in MariaDB's report for people. Its performance schema is off by default.
var activeSession = regexp.MustCompile(`^\S+, ACTIVE (?s:.*?)MariaDB thread id (\d+)`)

func openInMariaDB(ctx context.Context, root *sql.DB, namespace string) (open int, err error) {
	var engine, name, report string
	if err := root.QueryRowContext(ctx, "SHOW ENGINE INNODB STATUS").Scan(&engine, &name, &report); err != nil {
		return 0, err
	}
	sessions := "0"
	for _, transaction := range strings.Split(report, "---TRANSACTION ")[1:] {
		if found := activeSession.FindStringSubmatch(transaction); found != nil {
			sessions += "," + found[1]
		}
	}
	err = root.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = ? AND id IN ("+sessions+")", namespace).Scan(&open)
	return open, err
}

// Without this, the suite's check that no test leaves a transaction open could pass for the wrong reason.
func TestOpenTransactionsAreSeen(t *testing.T) {
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			instance := newInstance(t, server, "default")
			for _, statement := range []string{"INSERT INTO a VALUES (1)", "SELECT * FROM a"} {
				wantOpen(t, instance, 0)
				exec(t, instance.Admin, "CREATE TABLE IF NOT EXISTS a (n INTEGER)")
				tx, err := instance.Admin.Begin()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(statement); err != nil {
					t.Fatal(err)
				}
				wantOpen(t, instance, 1)
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
			}
			wantOpen(t, instance, 0)
		})
	}
}

func wantOpen(t *testing.T, instance inboxtest.Instance, want int) {
	t.Helper()
	if open, err := instance.Transactions(context.Background()); open != want || err != nil {
		t.Fatalf("%d open transactions, %v; want %d", open, err, want)
	}
}
