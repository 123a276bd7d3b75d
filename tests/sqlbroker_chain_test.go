package tests

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// TestSQLBrokerChain is inbox, outbox, relay, broker, inbox: every message comes twice, the relay publishes each outgoing message twice, and the second
// service has the effect of each once.
func TestSQLBrokerChain(t *testing.T) {
	forEachSQLPair(t, func(p *sqlPair) { p.run("chain", chain) })
}

const chained = 10

func chain(c *sqlCase) {
	next := c.newCase(c.T, c.name+"_next")
	for n := range chained {
		id := fmt.Sprintf("order-%d", n)
		c.publish(id, id)
	}

	c.config.PublishTopic = next.name
	first := c.start(sqlServiceOptions{inbox: inbox.Config{Outbox: inbox.ForwarderOutbox(
		wsql.PublisherConfig{SchemaAdapter: sqlBrokers[c.config.Engine].schema}, forwarder.PublisherConfig{ForwarderTopic: c.config.outbox()}, nil,
	)}})
	published := c.startRelay(true)
	next.start(sqlServiceOptions{})

	c.untilAllAcked()
	c.untilRelayed()
	next.untilAllAcked()
	require.NoError(c, first.close())

	require.Equal(c, allOnce(chained), c.rows())
	require.Equal(c, allOnce(chained), next.rows())
	require.Len(c, published.ids(), chained)
	for id, times := range published.ids() {
		require.Equal(c, 2, times, "publications of %s", id)
	}
	stored := countRows(c.T, c.queue, "SELECT COUNT(*) FROM "+c.broker.schema.MessagesTable(next.name))
	require.Equal(c, 2*chained, stored, "messages in the second topic")
	require.ElementsMatch(c, published.keys(), next.identity())
}

// startRelay carries the outbox of the case to its broker. With stutter the relay gets no answer to its first attempt at each message.
func (c *sqlCase) startRelay(stutter bool) *relayed {
	c.Helper()
	db, closePool, err := c.engine.pool(c.config.DSN, 2)
	require.NoError(c, err)
	c.Cleanup(closePool)
	outbox, err := sqlBrokers[c.config.Engine].subscriber(db, 0)
	require.NoError(c, err)
	publisher, err := wsql.NewPublisher(c.queueWriter, wsql.PublisherConfig{SchemaAdapter: c.broker.schema}, nil)
	require.NoError(c, err)
	published := &relayed{Publisher: publisher, stutter: stutter, times: map[string]int{}}
	relay, err := forwarder.NewForwarder(outbox, published, nil, forwarder.Config{ForwarderTopic: c.config.outbox()})
	require.NoError(c, err)

	ended := make(chan error, 1)
	go func() { ended <- relay.Run(context.Background()) }()
	<-relay.Running()
	c.Cleanup(func() { require.NoError(c, errors.Join(relay.Close(), <-ended, outbox.Close())) })
	return published
}

// relayed counts what the relay publishes.
type relayed struct {
	message.Publisher
	stutter bool

	mu    sync.Mutex
	times map[string]int // by UUID
}

func (r *relayed) Publish(topic string, msgs ...*message.Message) error {
	if err := r.Publisher.Publish(topic, msgs...); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, msg := range msgs {
		if r.times[msg.UUID]++; r.stutter && r.times[msg.UUID] == 1 {
			return errors.New("the answer got lost")
		}
	}
	return nil
}

func (r *relayed) ids() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.times)
}

func (r *relayed) keys() (ids []string) {
	for id := range r.ids() {
		ids = append(ids, id)
	}
	return ids
}
