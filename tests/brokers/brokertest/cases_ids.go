package brokertest

import (
	"context"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
)

// withoutID: a message that nobody gave an id runs no handler and is not lost.
func withoutID(c *testCase) {
	first := c.start(behaviour{})
	rawProducer.publish(c, "")
	refused := event{Kind: ended, NoIdentity: true}
	if c.broker.FailsBeforeMiddleware {
		refused = event{Kind: logged}
	}
	c.await("two refusals", 2, refused)
	first.kill() // a Router that closes would log errors of its own

	// Nobody acked it: another worker gets it.
	second := c.start(behaviour{})
	refused.From = second.number
	c.await("a refusal by the next worker", 1, refused)
	second.kill()
	c.requireNothing()
}

// withoutIDPoison: what can never be processed goes aside, whole.
func withoutIDPoison(c *testCase) {
	if c.broker.FailsBeforeMiddleware {
		c.Log("no poison queue: the message fails before any middleware")
		return
	}
	aside := c.subscribe(c.poison)
	w := c.start(behaviour{Poison: c.poison})
	rawProducer.publish(c, "")

	select {
	case msg := <-aside:
		require.NotNil(c, msg)
		require.Equal(c, payloadOf(""), []byte(msg.Payload))
		msg.Ack()
	case <-c.ctx.Done():
		c.Fatalf("no poison message came in %s", caseLimit)
	}
	c.requireNothing()

	// It no longer stands in the way.
	id := c.publishOne(rawProducer)
	c.await("the next message", 1, event{Kind: ended, Outcome: processed})
	w.stop()
	require.Len(c, c.events.matching(event{Kind: handling}), 1)
	require.Equal(c, all(1), c.rows())
	c.requireStored(id)
}

func (c *testCase) requireNothing() {
	c.Helper()
	require.Empty(c, c.events.matching(event{Kind: handling}))
	require.Equal(c, all(0), c.rows())
}

// subscribe is for the test's own process.
func (c *testCase) subscribe(topic string) <-chan *message.Message {
	subscriber, err := c.broker.Subscriber(c.address, topic, c.group, watermill.NopLogger{})
	require.NoError(c, err)
	c.Cleanup(func() { _ = subscriber.Close() })
	ctx, cancel := context.WithCancel(c.ctx)
	c.Cleanup(cancel)
	messages, err := subscriber.Subscribe(ctx, topic)
	require.NoError(c, err)
	return messages
}

// manyIDs: two workers share many messages, and one of them is killed between its commit and its ack.
func manyIDs(c *testCase) {
	const count = 50
	does := behaviour{HoldAt: beforeAck, HoldAfter: 5}
	workers := []*process{c.launch(does), c.launch(does)}
	c.await("both workers to start", len(workers), event{Kind: ready})
	for i := range count {
		rawProducer.publish(c, "raw-"+strconv.Itoa(i))
	}

	// Which of them holds first is the broker's choice; one may get all.
	hold := c.await("a worker to be killed", 1, event{Kind: held})[0]
	victim, survivor := workers[hold.From-1], workers[2-hold.From]
	victim.kill()
	survivor.goOn()
	c.await("the message that was not acked", 1, event{Kind: ended, Outcome: duplicate, ID: hold.ID, From: survivor.number})
	c.awaitIdentities(count)
	survivor.stop()
	require.Equal(c, all(count), c.rows())
}

// awaitIdentities asks the database, because the victim may have committed more than it could tell.
func (c *testCase) awaitIdentities(count int) {
	c.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for c.rows().identities < count {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			c.Fatalf("still not all messages after %s", caseLimit)
		}
	}
}
