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

	"github.com/watermill-inbox/inbox"
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

// process commits identities of a consumer through an Inbox, and makes its table.
func (db testDatabase) process(t *testing.T, consumer string, messages ...*message.Message) {
	t.Helper()
	in, err := inbox.New(db.pool, inbox.Config{Schema: db.schema, Consumer: consumer, AutoInitializeSchema: true}, nil)
	require.NoError(t, err)
	for _, msg := range messages {
		outcome, err := in.Process(msg, func(context.Context) error { return nil })
		require.NoError(t, err)
		require.Equal(t, inbox.Processed, outcome)
	}
}

// age makes identities of a consumer older.
func (db testDatabase) age(t *testing.T, consumer string, age time.Duration, where string) {
	t.Helper()
	literal := string(db.schema.AppendBytes(nil, consumer))
	db.exec(t, "UPDATE inbox_messages SET processed_at = "+fmt.Sprintf(db.older, int(age.Minutes()))+" WHERE consumer = "+literal+" AND "+where)
}

func (db testDatabase) idIs(id string) string {
	return "message_id = " + string(db.schema.AppendBytes(nil, id))
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
