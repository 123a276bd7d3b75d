package kafka

import (
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/brokers/inboxkafka"
)

func nothing(*message.Message) error { return nil }

// ofGroup is for another consumer group: all records come again.
func ofGroup(name string) func(*wmkafka.SubscriberConfig) {
	return func(c *wmkafka.SubscriberConfig) { c.ConsumerGroup = name }
}

// A producer that got no answer sends its message again: there are two records. A header tells that they are one message, their place does not.
func TestRetry_of_a_raw_producer(t *testing.T) { onEachBroker(t, retryOfARawProducer) }

func retryOfARawProducer(t *testing.T, address string) {
	t.Run("header", func(t *testing.T) {
		l := newLab(t, address)
		l.run(l.subscriber(), nothing)
		require.EqualValues(t, 0, l.produce(1, "order-1", "payload"))
		require.EqualValues(t, 1, l.produce(1, "order-1", "payload"))

		l.requireEnd("order-1", inbox.Processed)
		l.requireEnd("order-1", inbox.Duplicate)
		l.requireEffects("payload")
		l.awaitCommitted(1, 2)
	})
	t.Run("TopicPartitionOffset", func(t *testing.T) {
		l := newLab(t, address)
		l.identity = inboxkafka.TopicPartitionOffset("test")
		l.run(l.subscriber(), nothing)
		require.EqualValues(t, 0, l.produce(1, "order-1", "payload"))
		require.EqualValues(t, 1, l.produce(1, "order-1", "payload"))

		l.requireEnd("1/0", inbox.Processed)
		l.requireEnd("1/1", inbox.Processed) // the limit
		l.requireEffects("payload", "payload")
	})
}

// What Kafka itself delivers again has the same identity, without any header.
func TestTopicPartitionOffset_of_redeliveries(t *testing.T) {
	onEachBroker(t, topicPartitionOffsetOfRedeliveries)
}

func topicPartitionOffsetOfRedeliveries(t *testing.T, address string) {
	l := newLab(t, address)
	l.identity = inboxkafka.TopicPartitionOffset("test")
	failing := errors.New("the first run fails")
	stop := l.run(l.subscriber(), func(*message.Message) error {
		err := failing
		failing = nil
		return err
	})
	l.produce(2, "", "payload")
	nacked := receive(l, l.reports)
	require.EqualError(t, nacked.Err, "the first run fails")
	require.Equal(t, inbox.Identity{Producer: "test/" + l.name, ID: "2/0"}, nacked.Identity)
	again := receive(l, l.reports)
	require.NoError(t, again.Err)
	require.Equal(t, inbox.Processed, again.Outcome)
	require.Equal(t, nacked.Identity, again.Identity)
	l.awaitCommitted(2, 1)
	stop()

	l.run(l.subscriber(ofGroup(l.name+"-again")), nothing)
	replayed := receive(l, l.reports)
	require.Equal(t, inbox.Duplicate, replayed.Outcome)
	require.Equal(t, nacked.Identity, replayed.Identity)
	l.requireEffects("payload")
}

// Without a Router nothing tells the topic, and records of two topics would have one identity.
func TestTopicPartitionOffset_needs_a_Router(t *testing.T) {
	onEachBroker(t, topicPartitionOffsetNeedsARouter)
}

func topicPartitionOffsetNeedsARouter(t *testing.T, address string) {
	l := newLab(t, address)
	messages, err := l.subscriber().Subscribe(l.ctx, l.name)
	require.NoError(t, err)
	l.produce(0, "", "payload")
	msg := receive(l, messages)
	defer msg.Ack()
	_, err = inboxkafka.TopicPartitionOffset("1")(msg)
	require.ErrorContains(t, err, "did not come through a Router")
}

// What the documentation warns of: in a topic that was made again a new message is taken for an old one. Another epoch prevents it.
func TestTopicPartitionOffset_of_a_topic_made_again(t *testing.T) {
	onEachBroker(t, topicPartitionOffsetOfATopicMadeAgain)
}

func topicPartitionOffsetOfATopicMadeAgain(t *testing.T, address string) {
	l := newLab(t, address)
	l.identity = inboxkafka.TopicPartitionOffset("1")
	stop := l.run(l.subscriber(), nothing)
	l.produce(0, "", "equal")
	l.requireEnd("0/0", inbox.Processed)
	l.produce(0, "", "old")
	l.requireEnd("0/1", inbox.Processed)
	stop()

	l.makeTopicAgain()
	require.EqualValues(t, 0, l.produce(0, "", "equal"))
	stop = l.run(l.subscriber(ofGroup(l.name+"-2")), nothing)
	l.requireEnd("0/0", inbox.Duplicate) // lost
	require.EqualValues(t, 1, l.produce(0, "", "new"))
	var mismatch *inbox.MismatchError
	require.ErrorAs(t, receive(l, l.reports).Err, &mismatch)
	require.Equal(t, inbox.Identity{Producer: "1/" + l.name, ID: "0/1"}, mismatch.Identity)
	l.requireEffects("equal", "old")
	stop()
	for len(l.reports) > 0 { // of repetitions
		<-l.reports
	}

	l.identity = inboxkafka.TopicPartitionOffset("2")
	l.run(l.subscriber(ofGroup(l.name+"-3")), nothing)
	l.requireEnd("0/0", inbox.Processed)
	l.requireEnd("0/1", inbox.Processed)
	l.requireEffects("equal", "old", "equal", "new")
}

// makeTopicAgain takes its time: brokers delete later than they say.
func (l *lab) makeTopicAgain() {
	l.Helper()
	require.NoError(l, l.admin.DeleteTopic(l.name))
	for {
		err := l.admin.CreateTopic(l.name, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false)
		if err == nil {
			break
		}
		require.NoError(l, l.ctx.Err(), err)
		time.Sleep(50 * time.Millisecond)
	}
	l.producer = connect(l, l.address, manual) // the former one remembers the former topic
}
