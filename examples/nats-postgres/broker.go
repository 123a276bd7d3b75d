package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/watermill-inbox/inbox/brokers/inboxnats"
	"github.com/watermill-inbox/inbox/examples/internal/demo"
)

const (
	// ackWait is longer than the inbox's TxTimeout, so that no handler that may still commit is overtaken.
	ackWait = 30 * time.Second

	// window is the stream's own deduplication, short to show what comes after it.
	window = 500 * time.Millisecond
)

type broker struct {
	connection *nats.Conn
	js         jetstream.JetStream
}

// connect makes stream and consumer, as an operator does. A consumer that a subscription makes is deleted when the subscription ends.
func connect(ctx context.Context) (*broker, error) {
	connection, err := nats.Connect(demo.Env("INBOX_TEST_NATS", nats.DefaultURL))
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(connection)
	if err != nil {
		return nil, err
	}
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{stream}, Duplicates: window}); err != nil {
		return nil, fmt.Errorf("make stream: %w", err)
	}
	push, err := connection.JetStream()
	if err != nil {
		return nil, err
	}
	_, err = push.AddConsumer(stream, &nats.ConsumerConfig{
		Durable:        consumer,
		DeliverGroup:   consumer,
		DeliverSubject: "deliver." + stream + "." + consumer,
		DeliverPolicy:  nats.DeliverNewPolicy, // what earlier runs left is not ours
		AckPolicy:      nats.AckExplicitPolicy,
		AckWait:        ackWait,
		MaxAckPending:  10,
	})
	if err != nil {
		return nil, fmt.Errorf("make consumer: %w", err)
	}
	return &broker{connection, js}, nil
}

// subscriber has a connection of its own: the Router closes it.
func (b *broker) subscriber() (message.Subscriber, error) {
	return wmnats.NewSubscriber(wmnats.SubscriberConfig{
		URL:              b.connection.ConnectedUrl(),
		Unmarshaler:      inboxnats.Marshaler{}, // Nats-Msg-Id is the id
		QueueGroupPrefix: consumer,
		SubscribersCount: 4, // messages at a time
		AckWaitTimeout:   ackWait,
		NakDelay:         wmnats.NewStaticDelay(time.Second),
		JetStream: wmnats.JetStreamConfig{
			DurablePrefix:    consumer,
			SubscribeOptions: []nats.SubOpt{nats.ManualAck()}, // or nats.go acks what the subscriber gives up
		},
	}, logger)
}

// play publishes two orders, the second one three times.
func (b *broker) play(ctx context.Context, reports demo.Reports) error {
	if _, err := b.publish(ctx, "order-"+watermill.NewShortUUID(), 1); err != nil {
		return err
	}
	if err := reports.Await(ctx); err != nil {
		return err
	}
	second := "order-" + watermill.NewShortUUID()
	for repeated := false; ; repeated = true {
		dropped, err := b.publish(ctx, second, 2)
		switch {
		case err != nil:
			return err
		case dropped:
			time.Sleep(2 * window) // the producer is slow with its next attempt
			continue
		}
		if err := reports.Await(ctx); err != nil || repeated {
			return err
		}
	}
}

// publish is a producer without Watermill. It puts its id where JetStream expects it.
func (b *broker) publish(ctx context.Context, id string, quantity int) (dropped bool, err error) {
	fmt.Printf("orders     publishes %s: %d\n", id, quantity)
	ack, err := b.js.Publish(ctx, stream, []byte(fmt.Sprintf(`{"quantity": %d}`, quantity)), jetstream.WithMsgID(id))
	if err != nil {
		return false, err
	}
	if ack.Duplicate {
		fmt.Printf("JetStream  dropped it: the id came less than %s ago\n", window)
	}
	return ack.Duplicate, nil
}
