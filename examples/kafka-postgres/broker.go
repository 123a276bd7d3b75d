package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/brokers/inboxkafka"
	"github.com/watermill-inbox/inbox/examples/internal/demo"
)

const (
	defaultKafka = "127.0.0.1:9092"

	// idHeader is where the producer puts the id of a message.
	idHeader = "id"
)

type broker struct {
	address  string
	topic    string
	producer sarama.SyncProducer
}

func connect() (*broker, error) {
	address := demo.Env("INBOX_TEST_KAFKA", defaultKafka)
	config := sarama.NewConfig()
	config.Version = sarama.V1_0_0_0
	config.Producer.RequiredAcks = sarama.WaitForAll // or what only the leader has is lost with it
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer([]string{address}, config)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %s: %w", address, err)
	}
	// A topic of its own for each run, so that the story begins at the beginning.
	return &broker{address, "example-orders-" + watermill.NewShortUUID(), producer}, nil
}

// subscriber makes the topic before the first order.
func (b *broker) subscriber() (message.Subscriber, error) {
	config := kafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest // or what is there before the group is never delivered
	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers:                []string{b.address},
		ConsumerGroup:          consumer + "-" + b.topic,
		Unmarshaler:            inboxkafka.Marshaler{IDHeader: idHeader},
		OverwriteSaramaConfig:  config,
		InitializeTopicDetails: &sarama.TopicDetail{NumPartitions: 4, ReplicationFactor: 1}, // as many handlers at work as partitions
	}, logger)
	if err != nil {
		return nil, err
	}
	return subscriber, subscriber.SubscribeInitialize(b.topic)
}

// publish is a producer without Watermill. It returns the place of the record, which is another one each time.
func (b *broker) publish(_ context.Context, id string, quantity int) (place string, err error) {
	partition, offset, err := b.producer.SendMessage(&sarama.ProducerMessage{
		Topic:   b.topic,
		Key:     sarama.StringEncoder("customer-7"),
		Headers: []sarama.RecordHeader{{Key: []byte(idHeader), Value: []byte(id)}},
		Value:   sarama.StringEncoder(fmt.Sprintf(`{"quantity": %d}`, quantity)),
	})
	return fmt.Sprintf("%d/%d", partition, offset), err
}

// close takes the topic along.
func (b *broker) close() {
	admin, err := sarama.NewClusterAdmin([]string{b.address}, kafka.DefaultSaramaSubscriberConfig())
	if err == nil {
		err = errors.Join(admin.DeleteTopic(b.topic), admin.Close())
	}
	if err = errors.Join(err, b.producer.Close()); err != nil {
		logger.Error("close", err, nil)
	}
}
