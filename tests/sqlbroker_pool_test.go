package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// TestSQLBrokerPool shows what a pool must have if broker and inbox share it: two connections for each message in flight, one for the subscriber's
// transaction and one for the inbox's.
func TestSQLBrokerPool(t *testing.T) {
	for _, name := range []string{"postgres", "postgres-queue", "mysql", "mysql-queue", "mariadb", "mariadb-queue", "sqlite"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newSQLPair(t, name, sqlBrokers[name].engine)
			p.run("two", func(c *sqlCase) {
				c.config.Connections = 2
				c.publish("order-1", "order-2", "order-3")
				c.start(sqlServiceOptions{})
				c.untilAllAcked()
				require.Equal(c, allOnce(3), c.rows())
			})
			p.run("one", poolOfOne)
		})
	}
}

// poolOfOne: the subscriber keeps the only connection while it waits for the ack, so the inbox never gets one. Each delivery fails in its first step,
// after TxTimeout, and says so; nothing is lost.
func poolOfOne(c *sqlCase) {
	c.config.Connections = 1
	c.publish("order-1")
	reports := make(reportsTo, 1000)
	hungry := c.start(sqlServiceOptions{inbox: inbox.Config{Observer: reports, TxTimeout: 500 * time.Millisecond}})
	for range 2 {
		report := receiveOf(c, reports)
		c.Logf("%v", report.Err)
		require.Equal(c, inbox.StageBegin, report.Stage)
		require.ErrorContains(c, report.Err, "begin: attempt took longer than TxTimeout")
		require.False(c, inbox.IsPoison(report.Err), "%v", report.Err)
	}
	require.Zero(c, hungry.runs.Load())
	require.NoError(c, hungry.close())
	require.Equal(c, sqlRows{}, c.rows())
	require.Equal(c, 1, c.unacked(), fmt.Sprint(hungry.delivered()))

	c.config.Connections = 2
	c.start(sqlServiceOptions{})
	c.untilAllAcked()
	c.requireOnce("order-1")
}
