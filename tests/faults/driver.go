package faults

import (
	"context"
	"database/sql/driver"
	"sync"
)

// Driver stands around the driver of an engine that runs in the process.
type Driver struct {
	driver     driver.Driver
	dsn        string
	statements Statements
	hook       Hook

	mu       sync.Mutex
	released chan struct{}
}

// WrapDriver makes a driver.Connector whose connections call hook at the steps they see. Cut closes the connection, so that the engine rolls
// back what is open, and returns driver.ErrBadConn; Hold returns when the statement's context ends, or at Release.
func WrapDriver(wrapped driver.Driver, dsn string, statements Statements, hook Hook) *Driver {
	return &Driver{driver: wrapped, dsn: dsn, statements: statements, hook: hook, released: make(chan struct{})}
}

// Release cuts the connections that are held.
func (d *Driver) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.released)
	d.released = make(chan struct{})
}

// Driver is for database/sql.
func (d *Driver) Driver() driver.Driver { return d.driver }

// Connect is for database/sql.
func (d *Driver) Connect(context.Context) (driver.Conn, error) {
	conn, err := d.driver.Open(d.dsn)
	if err != nil {
		return nil, err
	}
	return &driverConn{fullConn: conn.(fullConn), driver: d}, nil
}

// fullConn is what drivers for contexts have.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.SessionResetter
	driver.Pinger
}

type driverConn struct {
	fullConn
	driver *Driver
	broken bool
}

// IsValid keeps database/sql from using a broken connection again.
func (c *driverConn) IsValid() bool { return !c.broken }

func (c *driverConn) Close() error {
	if c.broken {
		return nil
	}
	return c.fullConn.Close()
}

// run calls the hook on both sides of a statement.
func run[T any](ctx context.Context, c *driverConn, step Step, statement func() (T, error)) (result T, err error) {
	if step == "" {
		return statement()
	}
	var none T
	if verdict := c.ask(ctx, Point{step, Before}); verdict != Pass {
		return none, c.breakOff()
	}
	result, err = statement()
	if verdict := c.ask(ctx, Point{step, After}); verdict == Pass {
		return result, err
	}
	if rows, ok := any(result).(driver.Rows); ok && err == nil {
		_ = rows.Close() // else the engine keeps the connection, and what it has locked, until they are closed
	}
	return none, c.breakOff()
}

func (c *driverConn) ask(ctx context.Context, point Point) Verdict {
	c.driver.mu.Lock()
	released := c.driver.released
	c.driver.mu.Unlock()

	verdict := c.driver.hook(point)
	if verdict == Hold {
		select {
		case <-ctx.Done():
		case <-released:
		}
	}
	return verdict
}

func (c *driverConn) breakOff() error {
	_ = c.fullConn.Close()
	c.broken = true
	return driver.ErrBadConn
}

func (c *driverConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return run(ctx, c, Begin, func() (driver.Tx, error) {
		tx, err := c.fullConn.BeginTx(ctx, opts)
		return driverTx{tx, c}, err
	})
}

func (c *driverConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return run(ctx, c, c.driver.statements.Step(query), func() (driver.Result, error) {
		return c.fullConn.ExecContext(ctx, query, args)
	})
}

func (c *driverConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return run(ctx, c, c.driver.statements.Step(query), func() (driver.Rows, error) {
		return c.fullConn.QueryContext(ctx, query, args)
	})
}

type driverTx struct {
	driver.Tx
	conn *driverConn
}

func (t driverTx) Commit() error   { return t.end(Commit, t.Tx.Commit) }
func (t driverTx) Rollback() error { return t.end(Rollback, t.Tx.Rollback) }

func (t driverTx) end(step Step, end func() error) error {
	if t.conn.broken {
		return driver.ErrBadConn
	}
	_, err := run(context.Background(), t.conn, step, func() (struct{}, error) { return struct{}{}, end() })
	return err
}
