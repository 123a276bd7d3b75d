package deferred_test

import (
	"os"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// features are what a Receiver and a Subscriber together promise. A message is gone when it is processed, and belongs to one consumer, so there are
// neither old messages nor groups.
var features = tests.Features{
	ConsumerGroups:                   false,
	ExactlyOnceDelivery:              false,
	GuaranteedOrder:                  false,
	Persistent:                       true,
	NewSubscriberReceivesOldMessages: false,
}

// TestPubSub is Watermill's own suite. With INBOX_TEST_SOAK=full it has thousands of messages, and takes minutes.
func TestPubSub(t *testing.T) {
	f := features
	f.ForceShort = os.Getenv("INBOX_TEST_SOAK") != "full"
	onEachDatabase(t, func(t *testing.T, d databases.Database) {
		tests.TestPubSub(t, f, constructor(t, d, nil), nil)
	})
}

// TestPubSubInOrder is the suite with one ordering key for all messages of a topic. It handles one message at a time, so it has fewer.
func TestPubSubInOrder(t *testing.T) {
	inOrder := features
	inOrder.GuaranteedOrder, inOrder.ForceShort = true, true
	onEachDatabase(t, func(t *testing.T, d databases.Database) {
		tests.TestPubSub(t, inOrder, constructor(t, d, func(*message.Message) string { return "all" }), nil)
	})
}

// TestPubSubStress is the suite several times at once; see TestMain.
func TestPubSubStress(t *testing.T) {
	short := features
	short.ForceShort = true
	onEachDatabase(t, func(t *testing.T, d databases.Database) {
		tests.TestPubSubStressTest(t, short, constructor(t, d, nil), nil)
	})
}

// One database at a time: the suite has 50 subscribers at once, and each keeps a connection for its leases.
func onEachDatabase(t *testing.T, test func(t *testing.T, d databases.Database)) {
	for name, d := range databases.All {
		t.Run(name, func(t *testing.T) { test(t, d) })
	}
}

const connections = 80

// constructor makes a publisher and a subscriber for one test of Watermill's suite. That suite nacks a message hundreds of times and expects it back within
// seconds, so there is no limit of attempts and hardly a backoff.
func constructor(t *testing.T, d databases.Database, orderingKey func(*message.Message) string) tests.PubSubConstructor {
	pool, closePool, err := d.Open(d.Create(t), connections)
	require.NoError(t, err)
	t.Cleanup(closePool)
	return func(t *testing.T) (message.Publisher, message.Subscriber) {
		return newPair(t, pool, d, orderingKey)
	}
}

func newPair(t *testing.T, pool wsql.Beginner, d databases.Database, orderingKey func(*message.Message) string) (message.Publisher, message.Subscriber) {
	wakeup := &deferred.Wakeup{}
	receiver, err := deferred.NewReceiver(pool, deferred.ReceiverConfig{
		Schema: d.Schema, Consumer: "suite", OrderingKey: orderingKey, Wakeup: wakeup, AutoInitializeSchema: true, Timeout: 30 * time.Second,
	}, nil)
	require.NoError(t, err)
	subscriber, err := deferred.NewSubscriber(pool, deferred.SubscriberConfig{
		Schema: d.Schema, Consumer: "suite", MaxAttempts: -1, InitialBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
		PollInterval: 100 * time.Millisecond, Wakeup: wakeup, AutoInitializeSchema: true, CloseTimeout: 2 * time.Second,
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, subscriber.Close()) }) // the suite forgets some, which would use up the pool
	return receiver, subscriber
}
