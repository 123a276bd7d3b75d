package inboxkafka_test

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/brokers/inboxkafka"
)

var _ kafka.MarshalerUnmarshaler = inboxkafka.Marshaler{}

const uuidHeader = kafka.UUIDHeaderKey

// headers makes record headers of names and values.
func headers(pairs ...string) (made []*sarama.RecordHeader) {
	for i := 0; i < len(pairs); i += 2 {
		made = append(made, &sarama.RecordHeader{Key: []byte(pairs[i]), Value: []byte(pairs[i+1])})
	}
	return made
}

func unmarshal(t testing.TB, m inboxkafka.Marshaler, record *sarama.ConsumerMessage) *message.Message {
	t.Helper()
	msg, err := m.Unmarshal(record)
	require.NoError(t, err)
	return msg
}

func TestUnmarshal(t *testing.T) {
	t.Parallel()

	event := inboxkafka.Marshaler{IDHeader: "event"}
	for name, test := range map[string]struct {
		m        inboxkafka.Marshaler
		record   sarama.ConsumerMessage
		id       string
		metadata message.Metadata
	}{
		"nothing":               {event, sarama.ConsumerMessage{}, "", message.Metadata{}},
		"no id":                 {event, sarama.ConsumerMessage{Headers: headers("a", "b")}, "", message.Metadata{"a": "b"}},
		"Watermill's UUID":      {event, sarama.ConsumerMessage{Headers: headers(uuidHeader, "w", "a", "b")}, "w", message.Metadata{"a": "b"}},
		"another producer's id": {event, sarama.ConsumerMessage{Headers: headers("event", "e")}, "e", message.Metadata{"event": "e"}},
		"both":                  {event, sarama.ConsumerMessage{Headers: headers(uuidHeader, "w", "event", "e")}, "w", message.Metadata{"event": "e"}},
		"an empty UUID":         {event, sarama.ConsumerMessage{Headers: headers(uuidHeader, "", "event", "e")}, "e", message.Metadata{"event": "e"}},
		"the default header":    {inboxkafka.Marshaler{}, sarama.ConsumerMessage{Headers: headers("id", "1")}, "1", message.Metadata{"id": "1"}},
		"it is renamed":         {event, sarama.ConsumerMessage{Headers: headers("id", "1")}, "", message.Metadata{"id": "1"}},
		"names are exact":       {event, sarama.ConsumerMessage{Headers: headers("Event", "1", "event ", "2")}, "", message.Metadata{"Event": "1", "event ": "2"}},
		"bytes are kept":        {event, sarama.ConsumerMessage{Headers: headers("event", " Ä\xff\x00")}, " Ä\xff\x00", message.Metadata{"event": " Ä\xff\x00"}},
		"several values":        {event, sarama.ConsumerMessage{Headers: headers("event", "1", "a", "b", "event", "2")}, "2", message.Metadata{"event": "2", "a": "b"}},
		"the last is empty":     {event, sarama.ConsumerMessage{Headers: headers("event", "1", "event", "")}, "", message.Metadata{"event": ""}},
		"several UUIDs":         {event, sarama.ConsumerMessage{Headers: headers(uuidHeader, "1", uuidHeader, "2")}, "2", message.Metadata{}},
		"nil headers":           {event, sarama.ConsumerMessage{Headers: append(headers("event", "e"), nil, &sarama.RecordHeader{})}, "e", message.Metadata{"event": "e", "": ""}},
		"a key":                 {event, sarama.ConsumerMessage{Key: []byte("\xff")}, "", message.Metadata{inboxkafka.RecordKey: "\xff"}},
		"an empty key":          {event, sarama.ConsumerMessage{Key: []byte{}}, "", message.Metadata{inboxkafka.RecordKey: ""}},
		"a header like the key": {event, sarama.ConsumerMessage{Key: []byte("k"), Headers: headers(inboxkafka.RecordKey, "h")}, "", message.Metadata{inboxkafka.RecordKey: "h"}},
		"the key is the id":     {inboxkafka.Marshaler{IDHeader: inboxkafka.RecordKey}, sarama.ConsumerMessage{Key: []byte("k")}, "k", message.Metadata{inboxkafka.RecordKey: "k"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			test.record.Value = []byte("payload")
			got := unmarshal(t, test.m, &test.record)
			require.Equal(t, test.id, got.UUID)
			require.Equal(t, test.metadata, got.Metadata)
			require.Equal(t, message.Payload("payload"), got.Payload)
		})
	}
}

func TestUnmarshal_tombstone(t *testing.T) {
	t.Parallel()

	got := unmarshal(t, inboxkafka.Marshaler{}, &sarama.ConsumerMessage{Headers: headers("id", "1")})
	require.Equal(t, "1", got.UUID)
	require.Empty(t, got.Payload)
}

func TestMarshal(t *testing.T) {
	t.Parallel()

	msg := message.NewMessage("new", []byte("payload"))
	msg.Metadata = message.Metadata{"a": "b", inboxkafka.RecordKey: "k", uuidHeader: "inherited"}
	record, err := inboxkafka.Marshaler{}.Marshal("topic", msg)
	require.NoError(t, err)
	require.Equal(t, "topic", record.Topic)
	require.Equal(t, sarama.ByteEncoder("payload"), record.Value)
	require.Equal(t, sarama.ByteEncoder("k"), record.Key)
	require.ElementsMatch(t, []sarama.RecordHeader{{Key: []byte(uuidHeader), Value: []byte("new")}, {Key: []byte("a"), Value: []byte("b")}}, record.Headers)
	require.Len(t, msg.Metadata, 3, "the message is as it was")

	record, err = inboxkafka.Marshaler{}.Marshal("topic", &message.Message{UUID: "1"})
	require.NoError(t, err)
	require.Nil(t, record.Key)
}

// The two marshalers can be mixed while a system is changed from one to the other.
func TestMarshaler_and_the_default_read_each_other(t *testing.T) {
	t.Parallel()

	msg := message.NewMessage("w", []byte("payload"))
	msg.Metadata.Set("Key", "Value")
	for _, pair := range [][2]kafka.MarshalerUnmarshaler{
		{inboxkafka.Marshaler{IDHeader: "Key"}, kafka.DefaultMarshaler{}},
		{kafka.DefaultMarshaler{}, inboxkafka.Marshaler{IDHeader: "Key"}},
	} {
		record, err := pair[0].Marshal("topic", msg)
		require.NoError(t, err)
		got, err := pair[1].Unmarshal(overTheWire(t, record))
		require.NoError(t, err)
		require.True(t, msg.Equals(got))
	}
}

// CloudEvents in binary mode have their attributes in headers.
func TestCloudEvents(t *testing.T) {
	t.Parallel()

	msg := unmarshal(t, inboxkafka.Marshaler{}, &sarama.ConsumerMessage{Headers: headers("ce_specversion", "1.0", "ce_id", "1", "ce_source", "/shop")})
	require.Empty(t, msg.UUID)
	identity, err := inbox.CloudEvents(msg)
	require.NoError(t, err)
	require.Equal(t, inbox.Identity{Producer: "/shop", ID: "1"}, identity)
}

// overTheWire returns what a consumer gets.
func overTheWire(t testing.TB, record *sarama.ProducerMessage) *sarama.ConsumerMessage {
	t.Helper()
	received := &sarama.ConsumerMessage{Topic: record.Topic}
	for _, header := range record.Headers {
		received.Headers = append(received.Headers, &header)
	}
	for _, field := range []struct {
		from sarama.Encoder
		to   *[]byte
	}{{record.Key, &received.Key}, {record.Value, &received.Value}} {
		if field.from != nil {
			encoded, err := field.from.Encode()
			require.NoError(t, err)
			*field.to = append([]byte{}, encoded...)
		}
	}
	return received
}
