package rabbitmq

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/brokers/inboxamqp"
)

// everything is a message in which a producer without Watermill uses all that AMQP has.
var everything = amqp091.Publishing{
	MessageId: "order-1", AppId: "shop", Type: "OrderPlaced", ContentType: "application/json", CorrelationId: "c-1",
	Timestamp: time.Unix(1709208000, 0),
	Headers: amqp091.Table{
		"bool": true, "byte": byte(200), "int8": int8(-8), "int16": int16(-16), "int32": int32(-32), "int64": int64(-64), "float": float32(0.1),
		"double": 1e300, "decimal": amqp091.Decimal{Scale: 2, Value: -12345}, "time": time.Unix(1709208000, 0), "bytes": []byte("b\xff\x00"),
		"void": nil, "array": []any{int64(1), "a", amqp091.Table{"k": nil}}, "table": amqp091.Table{"z": int64(1), "a": true},
	},
	Body: []byte(`{"order": 1}`),
}

// wantMetadata are those of everything.
var wantMetadata = message.Metadata{
	inboxamqp.AppIDKey: "shop", inboxamqp.TypeKey: "OrderPlaced", inboxamqp.ContentTypeKey: "application/json",
	inboxamqp.CorrelationIDKey: "c-1", inboxamqp.TimestampKey: "2024-02-29T12:00:00Z",
	"bool": "true", "byte": "200", "int8": "-8", "int16": "-16", "int32": "-32", "int64": "-64", "float": "0.1",
	"double": "1e+300", "decimal": "-123.45", "time": "2024-02-29T12:00:00Z", "bytes": "b\xff\x00",
	"void": "", "array": `[1,"a",{"k":null}]`, "table": `{"a":true,"z":1}`,
}

// TestRedeliveredMetadata: a redelivery differs from the first delivery only in what the package says.
func TestRedeliveredMetadata(t *testing.T) {
	for name, added := range map[string][]string{
		amqp091.QueueTypeClassic: {amqp.MetadataRedeliveredKey},
		amqp091.QueueTypeQuorum:  {amqp.MetadataRedeliveredKey, "x-delivery-count"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			uri := address(t)
			channel, queue := connect(t, uri), queueName("redelivered-"+name)
			makeQueue(t, channel, queue, amqp091.Table{amqp091.QueueTypeArg: name})
			publish(t, channel, queue, everything)

			messages := consume(t, config(uri, name), queue)
			first := receive(t, messages)
			requireEverything(t, first)
			fingerprint := inbox.PayloadAndMetadataSHA256(keys(first.Metadata)...)
			sum, err := fingerprint(first)
			require.NoError(t, err)
			for range 2 {
				first.Nack()
				again := receive(t, messages)
				requireEverything(t, again, added...)
				sumAgain, err := fingerprint(again)
				require.NoError(t, err)
				require.Equal(t, sum, sumAgain)
				first = again
			}
			first.Ack()
		})
	}
}

// TestDeadLetterCycle is the usual way to delay a redelivery: a nack moves the message to a queue whose messages expire back into the first. RabbitMQ
// adds x-death, which is an array.
func TestDeadLetterCycle(t *testing.T) {
	uri := address(t)
	channel, queue := connect(t, uri), queueName("cycle")
	waiting := queue + "-waiting"
	deadLetterTo := func(queue string) amqp091.Table {
		return amqp091.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
	}
	expiring := deadLetterTo(queue)
	expiring[amqp091.QueueMessageTTLArg] = int32(1)
	makeQueue(t, channel, queue, deadLetterTo(waiting))
	makeQueue(t, channel, waiting, expiring)
	publish(t, channel, queue, everything)

	config := config(uri, "")
	config.Queue.Arguments = deadLetterTo(waiting)
	config.Consume.NoRequeueOnNack = true
	messages := consume(t, config, queue)
	added := []string{}
	for cycle := range 3 {
		msg := receive(t, messages)
		requireEverything(t, msg, added...)
		added = []string{"x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"}
		if cycle > 0 {
			require.Contains(t, msg.Metadata["x-death"], fmt.Sprintf(`"count":%d`, cycle))
		}
		msg.Nack()
	}

	// A service sends it on with all its metadata, x-death as a string among them, and RabbitMQ bears it.
	msg := receive(t, messages)
	publisher, err := amqp.NewPublisher(config, watermill.NopLogger{})
	require.NoError(t, err)
	defer func() { _ = publisher.Close() }()
	require.NoError(t, publisher.Publish(queue, msg.Copy()))
	msg.Ack()
	sentOn := receive(t, messages)
	requireEverything(t, sentOn, added...)
	sentOn.Nack()
	last := receive(t, messages)
	requireEverything(t, last, added...)
	last.Ack()
}

func queueName(name string) string { return fmt.Sprintf("%s-%d", name, time.Now().UnixNano()) }

func consume(t *testing.T, config amqp.Config, queue string) <-chan *message.Message {
	t.Helper()
	subscriber, err := amqp.NewSubscriber(config, watermill.NopLogger{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, subscriber.Close()) })
	messages, err := subscriber.Subscribe(context.Background(), queue)
	require.NoError(t, err)
	return messages
}

func receive(t *testing.T, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, open := <-messages:
		require.True(t, open)
		return msg
	case <-time.After(30 * time.Second):
		t.Fatal("no message came")
		return nil
	}
}

// requireEverything checks the message with only these keys in addition.
func requireEverything(t *testing.T, msg *message.Message, added ...string) {
	t.Helper()
	want := message.Metadata{}
	for key, value := range wantMetadata {
		want[key] = value
	}
	for _, key := range added {
		require.Contains(t, msg.Metadata, key)
		want[key] = msg.Metadata[key]
	}
	require.Equal(t, want, msg.Metadata)
	require.Equal(t, "order-1", msg.UUID)
	require.Equal(t, everything.Body, []byte(msg.Payload))
}

func keys(metadata message.Metadata) (keys []string) {
	for key := range metadata {
		keys = append(keys, key)
	}
	return keys
}
