// Package brokertest is what every broker has to show: the id of a message is the same on each delivery, whoever produced it,
// and an inbox behind the broker commits the effect of each message once, however the broker delivers it again.
//
// The wiring of a broker is a package beside this one. It hands over a Broker, whose closures use the official subscriber
// of Watermill and the broker's own client.
package brokertest

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// Broker is one broker with the subscriber that its users have.
type Broker struct {
	// Name tells the Brokers of one wiring apart, if it has several.
	Name string

	// Address returns where the broker answers. It skips or fails the test if there is none; see inboxtest.Server. It is
	// called in the test's process only.
	Address func(t testing.TB) string

	// Prepare makes the topic, where the subscriber does not make it. Nil: nothing to do.
	Prepare func(t testing.TB, address, topic string)

	// Subscriber returns a subscriber to topic that shares the work with others of the same group. Two instances in
	// different processes get the messages of an instance that was killed. It is called in the test's process and in worker processes.
	Subscriber func(address, topic, group string, logger watermill.LoggerAdapter) (message.Subscriber, error)

	// Publisher returns Watermill's own publisher.
	Publisher func(address string, logger watermill.LoggerAdapter) (message.Publisher, error)

	// PublishRaw publishes with the broker's own client, as a producer that knows nothing of Watermill does. The id goes where
	// such producers put it; with the empty id there is none.
	PublishRaw func(t testing.TB, address, topic, id string, payload []byte)

	// Identity is what users configure. Nil: inbox.MessageUUID.
	Identity inbox.IdentityFunc

	// AckDeadline is the time after which the subscriber of this wiring gets a message again that was not acked, while its first
	// handler still runs. Zero: this broker knows none, and NoAckDeadline says why.
	AckDeadline   time.Duration
	NoAckDeadline string

	// FailsBeforeMiddleware is true if a raw message without an id fails in the subscriber, before any middleware.
	FailsBeforeMiddleware bool
}
