package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/watermill-inbox/inbox/brokers/inboxredis"
	"github.com/watermill-inbox/inbox/examples/internal/demo"
)

const (
	defaultRedis = "127.0.0.1:6379"

	// The fields of the producer's entries.
	idField       = "order_id"
	quantityField = "quantity"
)

type broker struct {
	address string
	stream  string
	client  *redis.Client
}

func connect(ctx context.Context) (*broker, error) {
	address := demo.Env("INBOX_TEST_REDIS", defaultRedis)
	client := redis.NewClient(&redis.Options{Addr: address})
	if err := client.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("connect to Redis at %s: %w", address, err)
	}
	// A stream of its own for each run, so that the story begins at the beginning.
	return &broker{address, "example-orders-" + watermill.NewShortUUID(), client}, nil
}

// subscriber has a client of its own: the subscriber closes it.
func (b *broker) subscriber() (message.Subscriber, error) {
	return redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client:          redis.NewClient(&redis.Options{Addr: b.address}),
		ConsumerGroup:   consumer,
		Unmarshaller:    inboxredis.Marshaller{IDField: idField}, // the default one would end the subscription at the first order
		NackResendSleep: time.Second,                             // without it a nacked message comes again at once
		MaxIdleTime:     2 * time.Minute,                         // longer than three handlers: the subscriber reads ahead
		// Otherwise Close leaves a connection behind that waits for the first message.
		DisableIndefiniteInitialBlock: true,
	}, logger)
}

// publish is a producer without Watermill. It returns the entry's id, which is another one each time.
func (b *broker) publish(ctx context.Context, id string, quantity int) (place string, err error) {
	return b.client.XAdd(ctx, &redis.XAddArgs{Stream: b.stream, Values: map[string]any{idField: id, quantityField: quantity}}).Result()
}

// close takes the stream along.
func (b *broker) close() {
	if err := errors.Join(b.client.Del(context.Background(), b.stream).Err(), b.client.Close()); err != nil {
		logger.Error("close", err, nil)
	}
}
