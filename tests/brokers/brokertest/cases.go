package brokertest

import (
	"time"

	"github.com/stretchr/testify/require"
)

// nacked: the handler fails once after it has written its effect, and the broker delivers again.
func nacked(c *testCase, from producer) {
	w := c.start(behaviour{FailFirst: true})
	id := c.publishOne(from)
	c.await("the second delivery", 1, event{Kind: ended, Outcome: succeeded, From: w.number})
	w.stop()

	require.GreaterOrEqual(c, len(c.events.matching(event{Kind: delivered})), 2)
	c.requireOneMessage(id, 2)
}

// killedBeforeAck: the effect is committed and the broker never learns of it.
func killedBeforeAck(c *testCase, from producer) {
	victim := c.start(behaviour{HoldAt: beforeAck})
	id := c.publishOne(from)
	c.await("the commit", 1, event{Kind: held})
	require.Equal(c, all(1), c.rows())
	victim.kill()

	heir := c.start(behaviour{})
	again := c.await("the second delivery", 1, event{Kind: ended, Outcome: succeeded, From: heir.number})[0]
	require.Equal(c, duplicate, again.Outcome)
	heir.stop()
	c.requireOneMessage(id, 1)
}

// killedBeforeCommit: the effect is written, and goes with the process.
func killedBeforeCommit(c *testCase, from producer) {
	victim := c.start(behaviour{HoldAt: beforeCommit})
	id := c.publishOne(from)
	c.await("the effect", 1, event{Kind: held})
	require.Equal(c, all(0), c.rows())
	victim.kill()

	heir := c.start(behaviour{})
	c.await("the second delivery", 1, event{Kind: ended, Outcome: succeeded, From: heir.number})
	heir.stop()
	c.requireOneMessage(id, 2)
}

// ackDeadline: the handler does not look at its context and outlasts the deadline, so another worker gets the message meanwhile.
func ackDeadline(c *testCase, from producer) {
	if c.broker.AckDeadline == 0 {
		require.NotEmpty(c, c.broker.NoAckDeadline)
		c.Logf("no ack deadline: %s", c.broker.NoAckDeadline)
		return
	}
	patient := behaviour{TxTimeout: c.broker.AckDeadline + 30*time.Second}
	slow := patient
	slow.HoldAt = beforeCommit
	first := c.start(slow)
	id := c.publishOne(from)
	c.await("the effect", 1, event{Kind: held})

	second := c.start(patient)
	c.await("the delivery after the deadline", 1, event{Kind: delivered, From: second.number})
	require.Equal(c, all(0), c.rows())
	first.goOn()
	c.await("the end of the first handler", 1, event{Kind: ended, From: first.number})
	c.await("the commit", 1, event{Kind: ended, Outcome: processed})
	first.stop()
	c.await("an answer to the second worker", 1, event{Kind: ended, From: second.number})
	second.stop()
	runs := len(c.events.matching(event{Kind: handling}))
	require.LessOrEqual(c, runs, 2) // the second if the end of its context made the first one fail
	c.requireOneMessage(id, runs)
}

// requireOneMessage checks all that is durable of a case with one message, and that no delivery gave it another identity.
func (c *testCase) requireOneMessage(id string, runs int) {
	c.Helper()
	deliveries := c.events.matching(event{Kind: delivered})
	for _, delivery := range deliveries {
		require.Equal(c, id, delivery.ID)
		require.Equal(c, deliveries[0].Producer, delivery.Producer)
	}
	handled := c.events.matching(event{Kind: handling})
	require.Len(c, handled, runs, "runs of the handler")
	for _, run := range handled {
		require.NotEmpty(c, run.Key)
		require.Equal(c, handled[0].Key, run.Key, "idempotency key")
	}
	require.Equal(c, all(1), c.rows())
	c.requireStored(id)
}
