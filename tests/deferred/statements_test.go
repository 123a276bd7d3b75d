package deferred_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"sync"
)

// statementCounter stands around a driver and numbers two points of every statement of the process: before it is sent, and after the database has
// executed it but before anybody has seen the result.
type statementCounter struct {
	driver driver.Driver
	dsn    string
	at     func(n int, point string) // is called with the lock held, so nothing else happens in the process's transactions meanwhile

	mu     sync.Mutex
	passed int
	points map[string]bool
}

func countStatements(name, dsn string, at func(n int, point string)) (*statementCounter, error) {
	db, err := sql.Open(name, dsn)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return &statementCounter{driver: db.Driver(), dsn: dsn, at: at, points: map[string]bool{}}, nil
}

func (c *statementCounter) pass(point string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed++
	c.points[point] = true
	c.at(c.passed, point)
}

func (c *statementCounter) hasPassed(point string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.points[point]
}

// Driver is for database/sql.
func (c *statementCounter) Driver() driver.Driver { return c.driver }

// Connect is for database/sql.
func (c *statementCounter) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.driver.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &countedConn{fullConn: conn.(fullConn), counter: c}, nil
}

// fullConn is what drivers for contexts have.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
}

type countedConn struct {
	fullConn
	counter *statementCounter
	wrote   []string // kinds of the open transaction's statements that change something
}

// ResetSession is for database/sql, and for the drivers that have it.
func (c *countedConn) ResetSession(ctx context.Context) error {
	if conn, ok := c.fullConn.(driver.SessionResetter); ok {
		return conn.ResetSession(ctx)
	}
	return nil
}

func counted[T any](c *countedConn, kind string, statement func() (T, error)) (T, error) {
	c.counter.pass("before " + kind)
	result, err := statement()
	c.counter.pass("after " + kind)
	return result, err
}

func (c *countedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.wrote = nil
	tx, err := counted(c, "begin", func() (driver.Tx, error) { return c.fullConn.BeginTx(ctx, opts) })
	return countedTx{tx, c}, err
}

func (c *countedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	kind := kindOf(query)
	c.wrote = append(c.wrote, kind)
	return counted(c, kind, func() (driver.Result, error) { return c.fullConn.ExecContext(ctx, query, args) })
}

func (c *countedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return counted(c, "read", func() (driver.Rows, error) { return c.fullConn.QueryContext(ctx, query, args) })
}

type countedTx struct {
	driver.Tx
	conn *countedConn
}

func (t countedTx) Commit() error   { return t.end("commit", t.Tx.Commit) }
func (t countedTx) Rollback() error { return t.end("rollback", t.Tx.Rollback) }

// end names the end of a transaction after what it did last.
func (t countedTx) end(kind string, end func() error) error {
	if len(t.conn.wrote) > 0 {
		kind += " of " + t.conn.wrote[len(t.conn.wrote)-1]
	}
	_, err := counted(t.conn, kind, func() (struct{}, error) { return struct{}{}, end() })
	return err
}

// kinds are the statements of a deferred inbox that change something, each with a part of its text that no earlier one has. Those inside are followed
// by others in their transactions, as a rule.
var kinds = []struct {
	name, verb, part string
	inside           bool
}{
	{"receive", "INSERT INTO", "inbox_pending", false},
	{"identity", "INSERT INTO", "inbox_messages", true},
	{"effect", "INSERT INTO", "effects", true},
	{"complete", "DELETE FROM", "inbox_pending", false},
	{"release", "UPDATE", "attempts = attempts + -1", false},
	{"fail", "UPDATE", "attempts = attempts + 0", false},
	{"claim", "UPDATE", "attempts = attempts + 1", false},
	{"promote", "UPDATE", "CASE WHEN state", false},
	{"suspect", "UPDATE", "SET state = 1", false},
	{"wait", "UPDATE", "SET state = 3", true},
	{"kill", "UPDATE", "last_error", false},
	{"bury", "UPDATE", "SET state = 4", true},
	{"renew", "UPDATE", "SET due_at", false},
}

func kindOf(query string) string {
	for _, kind := range kinds {
		if strings.HasPrefix(query, kind.verb) && strings.Contains(query, kind.part) {
			return kind.name
		}
	}
	return fmt.Sprintf("%.40q", query)
}
