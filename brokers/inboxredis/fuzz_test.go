package inboxredis_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/brokers/inboxredis"
)

// FuzzUnmarshal reads any entry. Its id arrives exactly, and whatever has arrived can be published again.
func FuzzUnmarshal(f *testing.F) {
	f.Add(false, "", "", "", "", "")
	f.Add(false, "1", "payload", "", "amount", "5")
	f.Add(false, " Ä\xff", "\x00", "m", uuidField, "\xff")
	f.Add(true, "w", "payload", "\x81\xa1a\xa1b", "id", "other")
	f.Add(true, "w", "payload", `{"a":"b"}`, "amount", "5")
	f.Add(true, "", "", "\xc0", "id", "1")
	f.Add(true, "w", "", "\xdf\xff\xff\xff\xff\xdb\xff\xff\xff\xff", "", "")
	f.Add(true, "w", "", "\xc7\x01\x01\x00", "metadata", "m")
	f.Fuzz(func(t *testing.T, ofWatermill bool, id, payload, metadata, name, value string) {
		values := fields{name: value, "payload": payload, "metadata": metadata, "id": id}
		if ofWatermill {
			values = fields{name: value, "payload": payload, "metadata": metadata, uuidField: id}
		}
		want := id
		if uuid, ok := values[uuidField].(string); ok && uuid != "" {
			want = uuid
		} else if other, ok := values["id"].(string); ok {
			want = other
		}

		got := unmarshal(t, inboxredis.Marshaller{}, values)
		require.Equal(t, want, got.UUID)
		require.Equal(t, payload, string(got.Payload))

		again, err := inboxredis.Marshaller{}.Marshal("topic", got)
		require.NoError(t, err)
		delete(again, "id")
		require.Equal(t, got.UUID, unmarshal(t, inboxredis.Marshaller{}, overTheWire(again)).UUID)
	})
}

// FuzzMarshal publishes any message.
func FuzzMarshal(f *testing.F) {
	f.Add("uuid", "Key", "Value", []byte("payload"))
	f.Add("", "id", "inherited", []byte(nil))
	f.Add(" Ä\xff\x00", "\xff", "\xfe", []byte{0})
	f.Add("uuid", uuidField, "inherited", []byte("payload"))
	f.Fuzz(func(t *testing.T, uuid, key, value string, payload []byte) {
		msg := message.NewMessage(uuid, payload)
		msg.Metadata.Set(key, value)
		values, err := inboxredis.Marshaller{}.Marshal("topic", msg)
		if err != nil {
			require.Equal(t, uuidField, key)
			return
		}
		got := unmarshal(t, inboxredis.Marshaller{}, overTheWire(values))
		require.Equal(t, uuid, got.UUID)
		require.Equal(t, string(payload), string(got.Payload))
		if key != uuidField {
			require.Equal(t, msg.Metadata, got.Metadata)
		}
	})
}
