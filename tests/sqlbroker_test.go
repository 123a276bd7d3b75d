package tests

import (
	"errors"
	"fmt"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
)

// sqlPairs are watermill-sql as the broker in the database of the inbox, on the same pool, and in another one.
var sqlPairs = []struct{ broker, engine string }{
	{"postgres", "postgres"},
	{"postgres-queue", "postgres"},
	{"mysql", "mysql"},
	{"mysql-queue", "mysql"},
	{"mariadb", "mariadb"},
	{"mariadb-queue", "mariadb"},
	{"sqlite", "sqlite"},

	{"postgres", "mysql"},
	{"postgres-queue", "mariadb"},
	{"mysql", "postgres"},
	{"mariadb", "postgres"},
	{"postgres", "sqlite"},
}

func forEachSQLPair(t *testing.T, play func(p *sqlPair)) {
	for _, pair := range sqlPairs {
		t.Run(fmt.Sprintf("%s to %s", pair.broker, pair.engine), func(t *testing.T) {
			t.Parallel()
			play(newSQLPair(t, pair.broker, pair.engine))
		})
	}
}

// TestSQLBrokerRedelivers lets watermill-sql deliver messages again: the id is the same, and effect, identity and outgoing message are stored once.
func TestSQLBrokerRedelivers(t *testing.T) {
	forEachSQLPair(t, func(p *sqlPair) {
		p.run("killed_before_ack", killedBeforeAck)
		p.run("killed_before_commit", killedBeforeCommit)
		p.run("nacked", nacked)
	})
}

// killedBeforeAck: the effect is committed and the broker does not know.
func killedBeforeAck(c *sqlCase) {
	c.publish("order-1")
	victim := c.startWorker(beforeAck)
	require.Equal(c, workerEvent{Kind: workerHeld, ID: "order-1", Text: beforeAck}, victim.next())
	require.Equal(c, allOnce(1), c.rows())
	require.Equal(c, 1, c.unacked())
	victim.kill()

	heir := c.start(sqlServiceOptions{})
	c.untilAllAcked()
	require.Equal(c, []string{"order-1"}, heir.delivered())
	require.Zero(c, heir.runs.Load())
	c.requireOnce("order-1")
}

// killedBeforeCommit: the effect is written, and goes with the process.
func killedBeforeCommit(c *sqlCase) {
	c.publish("order-1")
	victim := c.startWorker(beforeCommit)
	require.Equal(c, workerEvent{Kind: workerHeld, ID: "order-1", Text: beforeCommit}, victim.next())
	require.Equal(c, sqlRows{}, c.rows())
	victim.kill()

	heir := c.start(sqlServiceOptions{})
	c.untilAllAcked()
	require.Equal(c, []string{"order-1"}, heir.delivered())
	require.EqualValues(c, 1, heir.runs.Load())
	c.requireOnce("order-1")
}

// requireOnce checks all that is durable of one message.
func (c *sqlCase) requireOnce(id string) {
	c.Helper()
	require.Equal(c, allOnce(1), c.rows())
	require.Equal(c, []string{id}, c.identity())
}

// nacked: the first two runs fail after they have written.
func nacked(c *sqlCase) {
	c.publish("order-1")
	var s *sqlService
	ready := make(chan struct{})
	s = c.start(sqlServiceOptions{during: func(*message.Message, wsql.Tx) error {
		<-ready
		if s.runs.Load() <= 2 {
			return errors.New("not yet")
		}
		return nil
	}})
	close(ready)
	c.untilAllAcked()
	require.Equal(c, []string{"order-1", "order-1", "order-1"}, s.delivered())
	c.requireOnce("order-1")
}
