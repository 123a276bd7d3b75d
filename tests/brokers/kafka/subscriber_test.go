package kafka

import (
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// An offset tells Kafka that all before it are done. None is committed before its message is acked.
func TestOffset_is_committed_after_the_ack(t *testing.T) {
	onEachBroker(t, offsetIsCommittedAfterTheAck)
}

func offsetIsCommittedAfterTheAck(t *testing.T, address string) {
	l := newLab(t, address)
	running, goOn := make(chan bool), make(chan bool)
	l.run(l.subscriber(func(c *wmkafka.SubscriberConfig) {
		c.OverwriteSaramaConfig.Consumer.Offsets.AutoCommit.Interval = 10 * time.Millisecond
	}), func(msg *message.Message) error {
		if msg.UUID == "held" {
			running <- true
			<-goOn
		}
		return nil
	})
	l.produce(0, "held", "")
	l.produce(1, "other", "")
	receive(l, running)
	require.EqualValues(t, -1, l.committed(0))
	close(goOn)
	l.awaitCommitted(0, 1)
	l.awaitCommitted(1, 1)
}

// A message that is nacked again and again stands in the way of those behind it in its partition, and of no others.
func TestNacked_message_blocks_its_partition(t *testing.T) {
	onEachBroker(t, nackedMessageBlocksItsPartition)
}

func nackedMessageBlocksItsPartition(t *testing.T, address string) {
	l := newLab(t, address)
	var repaired atomic.Bool
	l.run(l.subscriber(func(c *wmkafka.SubscriberConfig) { c.NackResendSleep = 10 * time.Millisecond }), func(msg *message.Message) error {
		if msg.UUID == "bad" && !repaired.Load() {
			return errors.New("bad")
		}
		return nil
	})
	l.produce(0, "bad", "bad")
	l.produce(0, "behind", "behind")
	require.Error(t, receive(l, l.reports).Err)
	l.produce(1, "beside", "beside")

	seen := map[string]int{}
	for seen["beside"] == 0 || seen["bad"] < 5 {
		seen[receive(l, l.reports).Identity.ID]++
	}
	require.Equal(t, 1, seen["beside"])
	require.Zero(t, seen["behind"])
	l.requireEffects("beside")
	require.EqualValues(t, -1, l.committed(0))

	repaired.Store(true)
	l.awaitCommitted(0, 2)
	l.requireEffects("beside", "bad", "behind")
}

// What the documentation warns of: sarama's default starts a new group at the end of the topic, and what is there already is never
// delivered.
func TestNewest_offset_leaves_out_what_came_before(t *testing.T) {
	onEachBroker(t, newestOffsetLeavesOutWhatCameBefore)
}

func newestOffsetLeavesOutWhatCameBefore(t *testing.T, address string) {
	l := newLab(t, address)
	l.produce(0, "before", "")
	l.run(l.subscriber(func(c *wmkafka.SubscriberConfig) { c.OverwriteSaramaConfig = wmkafka.DefaultSaramaSubscriberConfig() }), nothing)
	for n := 0; ; n++ { // the first ones come too early, too
		l.produce(0, "after-"+strconv.Itoa(n), "")
		select {
		case report := <-l.reports:
			require.Contains(t, report.Identity.ID, "after-")
			return
		case <-time.After(100 * time.Millisecond):
			require.NoError(t, l.ctx.Err(), "still waiting")
		}
	}
}

type failingUnmarshaler struct{ calls chan int64 }

func (u failingUnmarshaler) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	u.calls <- record.Offset
	return nil, errors.New("cannot be unmarshaled")
}

// Why inboxkafka.Marshaler never fails: the group would fetch the same record again and again, and get no further.
func TestError_of_an_unmarshaler_stops_the_partition(t *testing.T) {
	onEachBroker(t, errorOfAnUnmarshalerStopsThePartition)
}

func errorOfAnUnmarshalerStopsThePartition(t *testing.T, address string) {
	l := newLab(t, address)
	unmarshaler := failingUnmarshaler{make(chan int64)}
	subscriber := l.subscriber(func(c *wmkafka.SubscriberConfig) { c.Unmarshaler = unmarshaler })
	_, err := subscriber.Subscribe(l.ctx, l.name)
	require.NoError(t, err)
	l.produce(0, "1", "")
	l.produce(0, "2", "")
	for range 3 {
		require.Zero(t, receive(l, unmarshaler.calls))
	}
	go func() { // until Close
		for range unmarshaler.calls {
		}
	}()
	require.NoError(t, subscriber.Close())
	close(unmarshaler.calls)
	require.EqualValues(t, -1, l.committed(0))
}

// SubscribeInitialize makes a topic with the given partitions.
func TestSubscribeInitialize(t *testing.T) { onEachBroker(t, subscribeInitialize) }

func subscribeInitialize(t *testing.T, address string) {
	l := newLab(t, address)
	topic := l.name + "-initialized"
	subscriber := l.subscriber(func(c *wmkafka.SubscriberConfig) {
		c.InitializeTopicDetails = &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}
	})
	for range 2 { // by each instance
		require.NoError(t, subscriber.SubscribeInitialize(topic))
	}
	t.Cleanup(func() { _ = l.admin.DeleteTopic(topic) })
	offsets, err := subscriber.PartitionOffset(topic)
	require.NoError(t, err)
	require.Equal(t, wmkafka.PartitionOffset{0: 0, 1: 0}, offsets)
	require.ErrorContains(t, l.subscriber().SubscribeInitialize(topic), "InitializeTopicDetails is empty")
}

// Two consumers at work at once: the rebalance takes a message away whose handler goes on, and the inbox tells that it is the same one.
func TestRebalance_while_the_handler_runs(t *testing.T) {
	onEachBroker(t, rebalanceWhileTheHandlerRuns)
}

func rebalanceWhileTheHandlerRuns(t *testing.T, address string) {
	l := newLab(t, address)
	running, goOn := make(chan bool, 2), make(chan bool)
	slow := func(*message.Message) error {
		running <- true
		<-goOn
		return nil
	}
	l.run(l.subscriber(), slow)
	offset := l.produce(0, "slow", "payload")
	receive(l, running)

	messages, err := l.subscriber().Subscribe(l.ctx, l.name)
	require.NoError(t, err)
	msg := receive(l, messages)
	require.Equal(t, "slow", msg.UUID)
	gotten, _ := wmkafka.MessagePartitionOffsetFromCtx(msg.Context())
	require.Equal(t, offset, gotten)
	l.requireEffects()
	close(goOn)
	l.requireEnd("slow", inbox.Processed)
	require.EqualValues(t, -1, l.committed(0), "the first consumer's ack comes too late")
	go func() { // again, if the return of the first consumer takes it away
		for ; msg != nil; msg = <-messages {
			msg.Ack()
		}
	}()
	l.awaitCommitted(0, 1)
}
