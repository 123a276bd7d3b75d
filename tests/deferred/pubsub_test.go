package deferred_test

import (
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/deferred"
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

// inOrder is with one ordering key for all messages.
func inOrder(f tests.Features) tests.Features {
	f.GuaranteedOrder = true
	f.GuaranteedOrderWithSingleSubscriber = true
	return f
}

// TestPubSub is Watermill's own suite.
func TestPubSub(t *testing.T) {
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tests.TestPubSub(t, features, constructor(t, database, nil), nil)
		})
	}
}

// TestPubSubInOrder is Watermill's suite with an ordering key, where it knows a test of order.
func TestPubSubInOrder(t *testing.T) {
	for name, database := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			construct := constructor(t, database, func(*message.Message) string { return "all" })
			tests.TestPublishSubscribeInOrder(t, tests.TestContext{TestID: tests.NewTestID(), Features: inOrder(features)}, construct)
		})
	}
}

// constructor makes a publisher and a subscriber for one test of Watermill's suite. That suite nacks a message hundreds of times and expects it back within
// seconds, so there is no limit of attempts and hardly a backoff.
func constructor(t *testing.T, d database, orderingKey func(*message.Message) string) tests.PubSubConstructor {
	dsn := d.create(t)
	pool, closePool, err := d.open(dsn, 30)
	require.NoError(t, err)
	t.Cleanup(closePool)
	return func(t *testing.T) (message.Publisher, message.Subscriber) {
		return newPair(t, pool, d, orderingKey)
	}
}

func newPair(t *testing.T, pool wsql.Beginner, d database, orderingKey func(*message.Message) string) (message.Publisher, message.Subscriber) {
	wakeup := &deferred.Wakeup{}
	receiver, err := deferred.NewReceiver(pool, deferred.ReceiverConfig{
		Schema: d.schema, Consumer: "suite", OrderingKey: orderingKey, Wakeup: wakeup, AutoInitializeSchema: true, Timeout: 30 * time.Second,
	}, nil)
	require.NoError(t, err)
	subscriber, err := deferred.NewSubscriber(pool, deferred.SubscriberConfig{
		Schema: d.schema, Consumer: "suite", MaxAttempts: -1, InitialBackoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond,
		PollInterval: 100 * time.Millisecond, Wakeup: wakeup, AutoInitializeSchema: true, CloseTimeout: 10 * time.Second,
	}, nil)
	require.NoError(t, err)
	return receiver, subscriber
}
