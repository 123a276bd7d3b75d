package tests

import (
	"fmt"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// TestSQLBrokerRaw has a producer that is not Watermill: it inserts rows into the table of the topic, with a statement of its own.
func TestSQLBrokerRaw(t *testing.T) {
	forEachSQLPair(t, func(p *sqlPair) {
		p.run("raw", rawUUID)
		p.run("raw_without_uuid", rawWithoutUUID)
		p.run("raw_without_uuid_poison", rawWithoutUUIDPoison)
		p.run("raw_event_id", rawEventID)
	})
}

// rawUUID: the producer fills the column, and inserts one row twice, as one does that got no answer. The default identity is right.
func rawUUID(c *sqlCase) {
	for _, id := range []string{"row-1", "row-1", "Row-1", "row-2"} {
		c.insert(id, fmt.Sprintf(`{"row": %q}`, id), "{}")
	}
	s := c.start(sqlServiceOptions{})
	c.untilAllAcked()
	require.Equal(c, []string{"row-1", "row-1", "Row-1", "row-2"}, s.delivered())
	require.Equal(c, allOnce(3), c.rows())
	require.ElementsMatch(c, []string{"row-1", "Row-1", "row-2"}, c.identity())
}

// rawWithoutUUID: two rows that nobody can tell apart must not become one message, nor get an id that changes with each delivery.
func rawWithoutUUID(c *sqlCase) {
	c.config.AckDeadline = ackDeadline // nothing is ever acked
	for n := range 2 {
		c.insert("", fmt.Sprintf(`{"row": %d}`, n), "{}")
	}
	for range 2 { // the second service shows that the first one acked nothing
		reports := make(reportsTo, 1000)
		s := c.start(sqlServiceOptions{inbox: inbox.Config{Observer: reports}})
		for range 3 {
			report := receiveOf(c, reports)
			require.ErrorIs(c, report.Err, inbox.ErrNoIdentity)
			require.True(c, inbox.IsPoison(report.Err))
		}
		require.NoError(c, s.close())
		require.Zero(c, s.runs.Load())
		require.Equal(c, sqlRows{}, c.rows())
		require.Equal(c, 2, c.unacked())
	}
}

// rawWithoutUUIDPoison: with the poison queue such a row goes aside, whole, and what stands behind it is processed.
func rawWithoutUUIDPoison(c *sqlCase) {
	poison := c.name + "_aside"
	c.makeTopic(poison)
	c.insert("", `{"row": 7}`, `{"from": "raw"}`)
	c.insert("row-8", `{"row": 8}`, "{}")
	s := c.start(sqlServiceOptions{outside: []message.HandlerMiddleware{c.poisonQueue(poison)}})
	c.untilAllAcked()
	require.NoError(c, s.close())
	c.requireOnce("row-8")

	aside := c.receiveFrom(poison)
	require.Empty(c, aside.UUID)
	require.JSONEq(c, `{"row": 7}`, string(aside.Payload))
	require.Equal(c, "raw", aside.Metadata.Get("from"))
	require.Contains(c, aside.Metadata.Get(middleware.ReasonForPoisonedKey), inbox.ErrNoIdentity.Error())
}

func (c *sqlCase) poisonQueue(topic string) message.HandlerMiddleware {
	c.Helper()
	publisher, err := wsql.NewPublisher(c.queueWriter, wsql.PublisherConfig{SchemaAdapter: c.broker.schema}, nil)
	require.NoError(c, err)
	queue, err := middleware.PoisonQueueWithFilter(publisher, topic, inbox.IsPoison)
	require.NoError(c, err)
	return queue
}

// receiveFrom returns the first message of a topic.
func (c *sqlCase) receiveFrom(topic string) *message.Message {
	c.Helper()
	subscriber, err := c.broker.subscriber(c.queueWriter, 0)
	require.NoError(c, err)
	defer func() { require.NoError(c, subscriber.Close()) }()
	messages, err := subscriber.Subscribe(c.Context(), topic)
	require.NoError(c, err)
	msg := receiveOf(c, messages)
	msg.Ack()
	return msg
}

// rawEventID: the producer's own id is in the metadata, and the UUID changes whenever it repeats itself.
func rawEventID(c *sqlCase) {
	for n := range 3 {
		c.insert(fmt.Sprintf("random-%d-%d", n, time.Now().UnixNano()), `{"event": 1}`, `{"event_id": "E-1"}`)
	}
	c.insert("random", `{"event": 2}`, `{"event_id": "E-2"}`)
	s := c.start(sqlServiceOptions{inbox: inbox.Config{Identity: inbox.FromMetadata("event_id")}})
	c.untilAllAcked()
	require.Len(c, s.delivered(), 4)
	require.Equal(c, allOnce(2), c.rows())
	require.ElementsMatch(c, []string{"E-1", "E-2"}, c.identity())
}
