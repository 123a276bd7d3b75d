package deferred_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/sqlite"
)

// worker processes a stored message with an Inbox, with up to three attempts.
func worker(t *testing.T, config inbox.Config, handler message.HandlerFunc) func(query string) int {
	t.Helper()
	db, remove := openDatabase()
	t.Cleanup(remove)
	pool := wsql.BeginnerFromStdSQL(db)
	receiver, err := deferred.NewReceiver(pool, deferred.ReceiverConfig{Schema: sqlite.Schema{}, Consumer: "c", AutoInitializeSchema: true}, nil)
	require.NoError(t, err)
	subscriber, err := deferred.NewSubscriber(pool, deferred.SubscriberConfig{
		Schema: sqlite.Schema{}, Consumer: "c", MaxAttempts: 3, InitialBackoff: time.Millisecond, PollInterval: 10 * time.Millisecond,
	}, nil)
	require.NoError(t, err)
	config.Schema, config.Consumer, config.AutoInitializeSchema = sqlite.Schema{}, "c", true
	in, err := inbox.New(pool, config, nil)
	require.NoError(t, err)
	require.NoError(t, receiver.Publish("topic", message.NewMessage("1", nil)))

	router := message.NewDefaultRouter(watermill.NopLogger{})
	router.AddMiddleware(middleware.Recoverer, in.Middleware)
	router.AddHandler("process", "topic", subscriber, "out", nil, handler)
	go func() { _ = router.Run(context.Background()) }()
	t.Cleanup(func() { _ = router.Close() })
	return func(query string) (n int) {
		require.NoError(t, db.QueryRow(query).Scan(&n))
		return n
	}
}

// What fails after the handler did not count as an attempt: a message that the outbox refuses was tried for ever, and no operator saw it.
func TestRefusedByTheOutboxIsDead(t *testing.T) {
	runs := make(chan struct{}, 100)
	count := worker(t, inbox.Config{}, func(*message.Message) ([]*message.Message, error) {
		runs <- struct{}{}
		return []*message.Message{message.NewMessage("2", nil)}, nil // and there is no outbox
	})
	require.Eventually(t, func() bool { return count("SELECT COUNT(*) FROM inbox_pending WHERE state = 4") == 1 }, 20*time.Second, 10*time.Millisecond)
	require.Len(t, runs, 3)
	require.Zero(t, count("SELECT COUNT(*) FROM inbox_messages"))
}

// panicking fails at its first delivery.
type panicking struct{ observed chan struct{} }

func (p panicking) ObserveDelivery(inbox.DeliveryReport) {
	p.observed <- struct{}{}
	panic("no such label")
}

// An Observer that panicked kept the claim of its message until the end of the process.
func TestObserverPanicsAndTheClaimEnds(t *testing.T) {
	observer := panicking{make(chan struct{}, 100)}
	count := worker(t, inbox.Config{Observer: observer}, func(*message.Message) ([]*message.Message, error) { return nil, nil })
	<-observer.observed
	require.Eventually(t, func() bool { return count("SELECT COUNT(*) FROM inbox_pending") == 0 }, 20*time.Second, 10*time.Millisecond)
	require.Equal(t, 1, count("SELECT COUNT(*) FROM inbox_messages"))
	require.Empty(t, observer.observed)
}

// Whether a handler had acked its message itself was asked when that ack had been noticed. By then the delivery could have failed, and the ack counted as
// one that came after it: the message was removed without its effect.
func TestAckedByTheHandlerAndFailedIsKept(t *testing.T) {
	runs := make(chan struct{}, 100)
	count := worker(t, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
		runs <- struct{}{}
		msg.Ack()
		return nil, errors.New("no ink")
	})
	require.Eventually(t, func() bool { return count("SELECT COUNT(*) FROM inbox_pending WHERE state = 4") == 1 }, 20*time.Second, 10*time.Millisecond)
	require.Len(t, runs, 3)
	require.Zero(t, count("SELECT COUNT(*) FROM inbox_messages"))
}
