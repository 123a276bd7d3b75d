package inboxkafka_test

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/brokers/inboxkafka"
)

// FuzzUnmarshal reads any record. Its id arrives exactly, and whatever has arrived can be published again.
func FuzzUnmarshal(f *testing.F) {
	f.Add("", "", "", "", []byte(nil), []byte(nil))
	f.Add("id", "1", "a", "b", []byte("key"), []byte("payload"))
	f.Add("id", "1", "id", "2", []byte{}, []byte{})
	f.Add(uuidHeader, "w", "id", " Ä\xff\x00", []byte("\xff"), []byte("\x00"))
	f.Add(uuidHeader, "", "id", "1", []byte(nil), []byte("payload"))
	f.Add(uuidHeader, "1", uuidHeader, "", []byte("key"), []byte("payload"))
	f.Add(inboxkafka.RecordKey, "header", "ID", "1", []byte("key"), []byte(nil))
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string, key, payload []byte) {
		last := func(name string) (value string) {
			if name1 == name {
				value = value1
			}
			if name2 == name {
				value = value2
			}
			return value
		}
		want := last(uuidHeader)
		if want == "" {
			want = last("id")
		}

		got := unmarshal(t, inboxkafka.Marshaler{}, &sarama.ConsumerMessage{Headers: headers(name1, value1, name2, value2), Key: key, Value: payload})
		require.Equal(t, want, got.UUID)
		require.Equal(t, string(payload), string(got.Payload))
		require.NotContains(t, got.Metadata, uuidHeader)

		record, err := inboxkafka.Marshaler{}.Marshal("topic", got)
		require.NoError(t, err)
		again := unmarshal(t, inboxkafka.Marshaler{}, overTheWire(t, record))
		require.True(t, got.Equals(again))
	})
}

// FuzzMarshal publishes any message.
func FuzzMarshal(f *testing.F) {
	f.Add("uuid", "Key", "Value", []byte("payload"))
	f.Add("uuid", inboxkafka.RecordKey, "", []byte(nil))
	f.Add(" Ä\xff\x00", "\xff", "\xfe", []byte{0})
	f.Add("uuid", uuidHeader, "inherited", []byte("payload"))
	f.Fuzz(func(t *testing.T, uuid, key, value string, payload []byte) {
		if uuid == "" {
			return // then an inherited header "id" is the id
		}
		msg := message.NewMessage(uuid, payload)
		msg.Metadata.Set(key, value)
		record, err := inboxkafka.Marshaler{}.Marshal("topic", msg)
		require.NoError(t, err)
		got := unmarshal(t, inboxkafka.Marshaler{}, overTheWire(t, record))
		require.Equal(t, uuid, got.UUID)
		require.Equal(t, string(payload), string(got.Payload))
		if key != uuidHeader {
			require.Equal(t, msg.Metadata, got.Metadata)
		}
	})
}
