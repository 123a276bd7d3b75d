package inboxkafka_test

import (
	"fmt"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/brokers/inboxkafka"
)

func Example() {
	saramaConfig := kafka.DefaultSaramaSubscriberConfig()
	saramaConfig.Consumer.Offsets.Initial = sarama.OffsetOldest // or what is there already is never delivered
	config := kafka.SubscriberConfig{
		Brokers:               []string{"localhost:9092"},
		ConsumerGroup:         "inventory",
		Unmarshaler:           inboxkafka.Marshaler{IDHeader: "event-id"},
		OverwriteSaramaConfig: saramaConfig,
	}

	// What another producer has sent.
	record := &sarama.ConsumerMessage{
		Topic:   "orders",
		Key:     []byte("customer-7"),
		Headers: []*sarama.RecordHeader{{Key: []byte("event-id"), Value: []byte("order-1")}},
		Value:   []byte(`{"amount": 5}`),
	}

	msg, err := config.Unmarshaler.Unmarshal(record)
	fmt.Println(msg.UUID, msg.Metadata[inboxkafka.RecordKey], err)
	// Output: order-1 customer-7 <nil>
}

// The last resort, for producers that give their messages no id.
func ExampleTopicPartitionOffset() {
	config := inbox.Config{
		Consumer: "inventory",
		Identity: inboxkafka.TopicPartitionOffset("eu-1/2024-05"), // change it when the topic is made again
	}
	fmt.Println(config.Identity != nil)
	// Output: true
}
