package tests

import (
	"fmt"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// TestT12 delivers a message five times more, to two instances one after the other, and relays the outbox: it has ever had one row, and that was
// published once. The schemas of the outbox here delete nothing, so the rows that are there are those that ever were.
func TestT12(t *testing.T) {
	forEachSQLPair(t, func(p *sqlPair) {
		p.run("relayed", func(c *sqlCase) {
			const target = "relayed_target"
			c.makeTopic(target)
			c.config.PublishTopic = target
			options := func() sqlServiceOptions {
				return sqlServiceOptions{inbox: inbox.Config{Outbox: inbox.ForwarderOutbox(
					wsql.PublisherConfig{SchemaAdapter: sqlBrokers[c.config.Engine].schema}, forwarder.PublisherConfig{ForwarderTopic: c.config.outbox()}, nil,
				)}}
			}
			c.publish("order-1", "order-1", "order-1")
			first := c.start(options())
			c.untilAllAcked()
			published := c.startRelay(false)
			require.NoError(c, first.close())

			c.publish("order-1", "order-1", "order-1")
			second := c.start(options())
			c.untilAllAcked()
			c.untilRelayed()
			require.NoError(c, second.close())

			require.EqualValues(c, 1, first.runs.Load()+second.runs.Load())
			require.Len(c, append(first.delivered(), second.delivered()...), 6)
			c.requireOnce("order-1") // one row of the outbox, too
			require.Len(c, published.ids(), 1)
			for id, times := range published.ids() {
				require.Equal(c, 1, times, id)
			}
			require.Equal(c, 1, countRows(c.T, c.queue, "SELECT COUNT(*) FROM "+c.broker.schema.MessagesTable(target)))
		})
	})
}

// untilRelayed waits until the relay has acked the whole outbox.
func (c *sqlCase) untilRelayed() {
	c.Helper()
	query := fmt.Sprintf(sqlBrokers[c.config.Engine].unacked, c.config.outbox())
	c.until("the outbox to be relayed", func() bool { return countRows(c.T, c.db, query) == 0 })
}
