package inboxamqp_test

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/watermill-inbox/inbox/brokers/inboxamqp"
)

func Example() {
	config := amqp.NewDurableQueueConfig("amqp://guest:guest@localhost:5672/")
	config.Marshaler = inboxamqp.Marshaler{}

	// What a producer without Watermill has published, and a quorum queue delivers for the third time.
	msg, err := config.Marshaler.Unmarshal(amqp091.Delivery{
		MessageId: "order-1",
		AppId:     "shop",
		Headers:   amqp091.Table{"priority": int32(7), "x-delivery-count": int64(2)},
		Body:      []byte(`{"order": 1}`),
	})
	fmt.Println(msg.UUID, err)
	for _, key := range []string{inboxamqp.AppIDKey, "priority", "x-delivery-count"} {
		fmt.Println(key, msg.Metadata[key])
	}
	// Output:
	// order-1 <nil>
	// amqp_app_id shop
	// priority 7
	// x-delivery-count 2
}
