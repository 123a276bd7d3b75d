package inboxnats_test

import (
	"fmt"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/nats-io/nats.go"

	"github.com/watermill-inbox/inbox/brokers/inboxnats"
)

func Example() {
	config := wmnats.SubscriberConfig{
		URL:              nats.DefaultURL,
		QueueGroupPrefix: "inventory",
		Unmarshaler:      inboxnats.Marshaler{},
		JetStream: wmnats.JetStreamConfig{
			DurablePrefix:    "inventory",                     // a consumer that exists
			SubscribeOptions: []nats.SubOpt{nats.ManualAck()}, // or nats.go acks what the subscriber gives up
		},
	}

	// What `nats pub orders '{"order": 1}' -H Nats-Msg-Id:order-1` publishes.
	published := nats.NewMsg("orders")
	published.Header.Set(nats.MsgIdHdr, "order-1")
	published.Data = []byte(`{"order": 1}`)

	msg, err := config.Unmarshaler.Unmarshal(published)
	fmt.Println(msg.UUID, err)
	// Output: order-1 <nil>
}
