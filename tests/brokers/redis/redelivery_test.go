package redis

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

func nothing(*message.Message) error { return nil }

// A producer that got no answer adds its message again. Redis gives the two entries different ids; the field is the same.
func TestRetry_of_a_raw_producer(t *testing.T) {
	l := newLab(t)
	l.run(l.subscriber(), nothing)
	for range 2 {
		addEntry(t, l.client, l.name, map[string]any{"id": "order-1", "amount": 5})
	}

	l.requireEnd("order-1", inbox.Processed)
	l.requireEnd("order-1", inbox.Duplicate)
	l.requireEffects(1)
	l.awaitPending(0)
	entries, err := l.client.XRange(l.ctx, l.name, "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.NotEqual(t, entries[0].ID, entries[1].ID)
}

// An entry has any fields. The client reads all values as strings.
func TestEntry_without_a_payload(t *testing.T) {
	l := newLab(t)
	metadata := make(chan message.Metadata, 1)
	l.run(l.subscriber(), func(msg *message.Message) error {
		require.Empty(t, msg.Payload)
		metadata <- msg.Metadata
		return nil
	})
	addEntry(t, l.client, l.name, map[string]any{"id": 7, "amount": 5, "paid": true, "note": "\xff"})

	l.requireEnd("7", inbox.Processed)
	require.Equal(t, message.Metadata{"amount": "5", "paid": "1", "note": "\xff"}, receive(l, metadata))
}

// A consumer claims its own message, too, when the handler is slow. It comes again after the handler's end.
func TestMaxIdleTime_ends_while_the_handler_runs(t *testing.T) {
	l := newLab(t)
	l.run(l.subscriber(func(c *redisstream.SubscriberConfig) { c.MaxIdleTime = 500 * time.Millisecond }), func(*message.Message) error {
		for {
			pending, err := l.deliveries()
			if err != nil {
				return err
			}
			if len(pending) == 1 && pending[0].RetryCount > 1 {
				return nil
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	addEntry(t, l.client, l.name, map[string]any{"id": "slow"})

	l.requireEnd("slow", inbox.Processed)
	l.requireEnd("slow", inbox.Duplicate)
	l.requireEffects(1)
	l.awaitPending(0)
}

// What the documentation warns of: trimming takes away messages that are still to be processed, whatever the group has acked.
func TestTrimmed_entry_is_lost(t *testing.T) {
	l := newLab(t)
	subscriber := l.subscriber()
	messages, err := subscriber.Subscribe(l.ctx, l.name)
	require.NoError(t, err)
	addEntry(t, l.client, l.name, map[string]any{"id": "lost"})
	require.Equal(t, "lost", receive(l, messages).UUID)
	require.NoError(t, subscriber.Close()) // without an ack
	require.EqualValues(t, 1, l.pending())

	require.NoError(t, l.client.XTrimMaxLen(l.ctx, l.name, 0).Err())
	l.run(l.subscriber(), nothing)
	l.awaitPending(0) // the next consumer has claimed nothing, and forgets it
	addEntry(t, l.client, l.name, map[string]any{"id": "next"})
	l.requireEnd("next", inbox.Processed)
	l.requireEffects(1)
}
