package inboxredis_test

import (
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"

	"github.com/watermill-inbox/inbox/brokers/inboxredis"
)

func Example() {
	config := redisstream.SubscriberConfig{
		// Client: redis.NewClient(&redis.Options{Addr: "localhost:6379"}),
		ConsumerGroup:   "inventory",
		Unmarshaller:    inboxredis.Marshaller{IDField: "order_id", PayloadField: "body"},
		NackResendSleep: time.Second,
	}

	// The fields of what `XADD orders * order_id order-1 body '{"amount": 5}' tenant acme` adds.
	fields := map[string]any{"order_id": "order-1", "body": `{"amount": 5}`, "tenant": "acme"}

	msg, err := config.Unmarshaller.Unmarshal(fields)
	fmt.Println(msg.UUID, string(msg.Payload), msg.Metadata, err)
	// Output: order-1 {"amount": 5} map[tenant:acme] <nil>
}
