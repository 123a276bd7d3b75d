package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/deferred"
)

const (
	stock  = "reserve-stock"
	mail   = "send-mail"
	orders = "orders"
)

// receive stores messages of a consumer through a Receiver, and makes the tables.
func (db testDatabase) receive(t *testing.T, consumer string, messages ...*message.Message) {
	t.Helper()
	receiver, err := deferred.NewReceiver(db.pool, deferred.ReceiverConfig{Schema: db.schema, Consumer: consumer, AutoInitializeSchema: true}, nil)
	require.NoError(t, err)
	require.NoError(t, receiver.Publish(orders, messages...))
}

func messages(n int) []*message.Message {
	var all []*message.Message
	for i := range n {
		all = append(all, message.NewMessage(fmt.Sprintf("evt-%d", i+1), []byte("lamp")))
	}
	return all
}

// kill lets a handler fail until n messages of a consumer are dead.
func (db testDatabase) kill(t *testing.T, consumer string, n int) {
	t.Helper()
	subscriber, err := deferred.NewSubscriber(db.pool, deferred.SubscriberConfig{
		Schema: db.schema, Consumer: consumer, MaxAttempts: 1, PollInterval: 10 * time.Millisecond,
	}, nil)
	require.NoError(t, err)
	router := message.NewDefaultRouter(watermill.NopLogger{})
	router.AddMiddleware(deferred.RecordError)
	router.AddConsumerHandler("fails", orders, subscriber, func(*message.Message) error { return errors.New("no prices yet") })
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	require.Eventually(t, func() bool { return db.count(t, "inbox_pending WHERE state = 4") >= n }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, router.Close())
	require.NoError(t, <-ended)
}
