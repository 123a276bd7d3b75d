package nats

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/brokers/inboxnats"
)

// window is long enough for two calls on a busy machine and short enough to wait for.
const window = 3 * time.Second

func nothing(*message.Message) error { return nil }

// Within the window JetStream drops a repetition, after it the inbox recognises it.
func TestDeduplication_of_a_raw_producer(t *testing.T) {
	l := newLab(t, window)
	l.makeConsumer(nats.ConsumerConfig{AckWait: 10 * time.Second})
	metadata := make(chan message.Metadata, 1)
	l.run(l.subscriber(), func(msg *message.Message) error {
		metadata <- msg.Metadata
		return nil
	})

	first, again := l.publish("1", "payload"), l.publish("1", "payload")
	require.True(t, again.Duplicate)
	require.Equal(t, first.Sequence, again.Sequence)
	require.Equal(t, inbox.Processed, l.ended().Outcome)
	require.Equal(t, message.Metadata{nats.MsgIdHdr: "1"}, receive(l, metadata, "metadata"))

	outside := l.publishOutsideOfTheWindow("1", "payload")
	require.Greater(t, outside.Sequence, first.Sequence)
	require.Equal(t, inbox.Duplicate, l.ended().Outcome) // the next delivery: those within the window made none
	l.awaitAllAcked(outside.Sequence)
	l.requireRows(1, 1)
}

// JetStream compares the id only. The other content is lost within the window, and detected after it.
func TestDeduplication_of_other_content(t *testing.T) {
	l := newLab(t, window)
	l.makeConsumer(nats.ConsumerConfig{AckWait: 10 * time.Second, MaxDeliver: 1})
	l.run(l.subscriber(), nothing)

	l.publish("1", "payload")
	require.True(t, l.publish("1", "other").Duplicate)
	require.Equal(t, inbox.Processed, l.ended().Outcome)

	l.publishOutsideOfTheWindow("1", "other")
	var mismatch *inbox.MismatchError
	require.ErrorAs(t, l.ended().Err, &mismatch)
	require.Equal(t, "1", mismatch.Identity.ID)
	l.requireRows(1, 1)
}

// Marshal sets Nats-Msg-Id; the default marshaler does not.
func TestDeduplication_of_Watermill(t *testing.T) {
	for name, test := range map[string]struct {
		marshaler wmnats.Marshaler
		stored    uint64
	}{
		"inboxnats": {inboxnats.Marshaler{}, 1},
		"default":   {&wmnats.NATSMarshaler{}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, time.Minute)
			publisher, err := wmnats.NewPublisher(wmnats.PublisherConfig{URL: l.connection.ConnectedUrl(), Marshaler: test.marshaler}, watermill.NopLogger{})
			require.NoError(t, err)
			defer func() { _ = publisher.Close() }()
			msg := message.NewMessage("1", []byte("payload"))
			require.NoError(t, publisher.Publish(l.name, msg, msg))

			stream, err := l.js.Stream(l.ctx, l.name)
			require.NoError(t, err)
			require.Equal(t, test.stored, stream.CachedInfo().State.Msgs)
			l.makeConsumer(nats.ConsumerConfig{AckWait: 10 * time.Second})
			l.run(l.subscriber(), nothing)
			outcomes := map[inbox.Outcome]uint64{}
			for range test.stored {
				outcomes[l.ended().Outcome]++
			}
			require.EqualValues(t, 1, outcomes[inbox.Processed])
			l.awaitAllAcked(test.stored)
			l.requireRows(1, 1)
		})
	}
}

// The default unmarshaler refuses it, and it comes again without end.
func TestHeader_with_two_values(t *testing.T) {
	l := newLab(t, time.Minute)
	l.makeConsumer(nats.ConsumerConfig{AckWait: 10 * time.Second})
	metadata := make(chan message.Metadata, 1)
	l.run(l.subscriber(), func(msg *message.Message) error {
		metadata <- msg.Metadata
		return nil
	})
	_, err := l.js.PublishMsg(l.ctx, &nats.Msg{Subject: l.name, Header: nats.Header{nats.MsgIdHdr: {"1"}, "Via": {"a", "b"}}, Data: []byte("payload")})
	require.NoError(t, err)
	require.Equal(t, inbox.Processed, l.ended().Outcome)
	require.Equal(t, message.Metadata{nats.MsgIdHdr: "1", "Via": "a, b"}, receive(l, metadata, "metadata"))
	l.requireRows(1, 1)
}
