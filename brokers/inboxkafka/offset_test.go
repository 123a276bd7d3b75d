package inboxkafka_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/brokers/inboxkafka"
)

// The tests with a broker show what it does with messages from one.

func TestTopicPartitionOffset_needs_an_epoch(t *testing.T) {
	t.Parallel()

	require.PanicsWithValue(t, "inboxkafka: TopicPartitionOffset: the epoch is empty", func() { inboxkafka.TopicPartitionOffset("") })
}

func TestTopicPartitionOffset_refuses_a_message_that_is_not_from_Kafka(t *testing.T) {
	t.Parallel()

	got := make(chan error, 1)
	pubSub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	require.NoError(t, err)
	router.AddConsumerHandler("handler", "topic", pubSub, func(msg *message.Message) error {
		_, err := inboxkafka.TopicPartitionOffset("1")(msg)
		got <- err
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	require.NoError(t, pubSub.Publish("topic", message.NewMessage("1", nil)))
	require.ErrorContains(t, <-got, "not from watermill-kafka")
	require.NoError(t, router.Close())
	require.NoError(t, <-ended)
}
