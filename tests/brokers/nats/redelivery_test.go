package nats

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// The subscriber waits longer than the server: the message comes again while its first handler runs.
func TestAckWait_ends_while_the_handler_runs(t *testing.T) {
	l := newLab(t, time.Minute)
	l.makeConsumer(nats.ConsumerConfig{AckWait: time.Second})
	var runs atomic.Int32
	l.run(l.subscriber(), func(*message.Message) error {
		runs.Add(1)
		l.awaitConsumer("a redelivery", func(info *jetstream.ConsumerInfo) bool { return info.NumRedelivered > 0 })
		return nil
	})
	ack := l.publish("1", "payload")

	require.ElementsMatch(t, []inbox.Outcome{inbox.Processed, inbox.Duplicate}, []inbox.Outcome{l.ended().Outcome, l.ended().Outcome})
	l.awaitAllAcked(ack.Sequence)
	require.EqualValues(t, 1, runs.Load())
	l.requireRows(1, 1)
}

// The subscriber gives up. It ends the context of the handler, which rolls back.
func TestAckWaitTimeout_ends_the_handler(t *testing.T) {
	for name, test := range map[string]struct {
		options []nats.SubOpt
		ackWait time.Duration // longer than AckWaitTimeout, so that the subscriber is the first to give up
	}{
		"with ManualAck":    {[]nats.SubOpt{nats.ManualAck()}, 2 * time.Second},
		"without ManualAck": {nil, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, time.Minute)
			l.makeConsumer(nats.ConsumerConfig{AckWait: test.ackWait})
			var runs atomic.Int32
			l.run(l.subscriber(func(c *wmnats.SubscriberSubscriptionConfig) {
				c.AckWaitTimeout, c.JetStream.SubscribeOptions = time.Second, test.options
			}), func(msg *message.Message) error {
				if runs.Add(1) > 1 {
					return nil
				}
				<-msg.Context().Done()
				return msg.Context().Err()
			})
			ack := l.publish("1", "payload")

			require.ErrorIs(t, l.ended().Err, context.Canceled)
			if test.options == nil {
				// What the documentation warns of: nats.go has acked the message that nobody processed.
				l.awaitAllAcked(ack.Sequence)
				l.requireRows(0, 0)
				return
			}
			require.Equal(t, inbox.Processed, l.ended().Outcome)
			l.awaitAllAcked(ack.Sequence)
			require.EqualValues(t, 2, runs.Load())
			l.requireRows(1, 1)
		})
	}
}

// What nobody processed is not acked and not in the inbox. It is still in the stream, and the same id published again is processed.
func TestMaxDeliver_exhausted(t *testing.T) {
	l := newLab(t, 100*time.Millisecond)
	l.makeConsumer(nats.ConsumerConfig{AckWait: time.Second, MaxDeliver: 2})
	advisories := make(chan *nats.Msg, 1)
	_, err := l.connection.ChanSubscribe("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."+l.name+"."+l.name, advisories)
	require.NoError(t, err)
	require.NoError(t, l.connection.Flush())

	var repaired atomic.Bool
	broken := errors.New("broken")
	l.run(l.subscriber(), func(*message.Message) error {
		if repaired.Load() {
			return nil
		}
		return broken
	})
	ack := l.publish("1", "payload")
	require.ErrorIs(t, l.ended().Err, broken)
	require.ErrorIs(t, l.ended().Err, broken)

	var advisory struct {
		StreamSeq  uint64 `json:"stream_seq"`
		Deliveries int    `json:"deliveries"`
	}
	require.NoError(t, json.Unmarshal(receive(l, advisories, "the advisory").Data, &advisory))
	require.Equal(t, ack.Sequence, advisory.StreamSeq)
	require.Equal(t, 2, advisory.Deliveries)
	l.requireRows(0, 0)
	require.Empty(t, l.reports)

	repaired.Store(true)
	l.republish(advisory.StreamSeq)
	require.Equal(t, inbox.Processed, l.ended().Outcome)
	l.requireRows(1, 1)
}

// republish is what an operator does after the advisory.
func (l *lab) republish(sequence uint64) {
	l.Helper()
	stream, err := l.js.Stream(l.ctx, l.name)
	require.NoError(l, err)
	stored, err := stream.GetMsg(l.ctx, sequence)
	require.NoError(l, err)
	l.publishOutsideOfTheWindow(stored.Header.Get(nats.MsgIdHdr), string(stored.Data))
}

// publishOutsideOfTheWindow waits until the stream takes the id as new.
func (l *lab) publishOutsideOfTheWindow(id, payload string) *jetstream.PubAck {
	l.Helper()
	for {
		if ack := l.publish(id, payload); !ack.Duplicate {
			return ack
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A consumer that the subscription has made goes with it, and with it what was acked.
func TestClose_deletes_only_the_consumer_that_Subscribe_made(t *testing.T) {
	for name, first := range map[string]bool{"made before": true, "made by Subscribe": false} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, time.Minute)
			if first {
				l.makeConsumer(nats.ConsumerConfig{AckWait: time.Second})
			}
			subscriber := l.subscriber()
			l.run(subscriber, func(*message.Message) error { return nil })
			l.publish("1", "payload")
			require.Equal(t, inbox.Processed, l.ended().Outcome)
			require.NoError(t, subscriber.Close())

			_, err := l.js.Consumer(l.ctx, l.name, l.name)
			if first {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, jetstream.ErrConsumerNotFound)
			l.run(l.subscriber(), func(*message.Message) error { return nil })
			require.Equal(t, inbox.Duplicate, l.ended().Outcome) // the stream again from its start
			l.requireRows(1, 1)
		})
	}
}
