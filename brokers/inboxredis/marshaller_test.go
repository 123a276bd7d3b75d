package inboxredis_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/brokers/inboxredis"
)

var _ redisstream.MarshallerUnmarshaller = inboxredis.Marshaller{}

const uuidField = redisstream.UUIDHeaderKey

type fields = map[string]any

func unmarshal(t testing.TB, m inboxredis.Marshaller, values fields) *message.Message {
	t.Helper()
	msg, err := m.Unmarshal(values)
	require.NoError(t, err)
	msg.Metadata.Set("writable", "") // panics if it is not
	delete(msg.Metadata, "writable")
	return msg
}

func TestUnmarshal_other_producers(t *testing.T) {
	t.Parallel()

	named := inboxredis.Marshaller{IDField: "order", PayloadField: "body"}
	for name, test := range map[string]struct {
		m           inboxredis.Marshaller
		values      fields
		id, payload string
		metadata    message.Metadata
	}{
		"nothing":              {named, nil, "", "", message.Metadata{}},
		"no id":                {named, fields{"body": "b"}, "", "b", message.Metadata{}},
		"an empty id":          {named, fields{"order": "", "body": "b"}, "", "b", message.Metadata{}},
		"no payload":           {named, fields{"order": "1", "a": "b"}, "1", "", message.Metadata{"a": "b"}},
		"all":                  {named, fields{"order": "1", "body": "b", "a": "b"}, "1", "b", message.Metadata{"a": "b"}},
		"defaults":             {inboxredis.Marshaller{}, fields{"id": "1", "payload": "b", "metadata": "m"}, "1", "b", message.Metadata{"metadata": "m"}},
		"defaults are renamed": {named, fields{"id": "1", "payload": "b"}, "", "", message.Metadata{"id": "1", "payload": "b"}},
		"one field for both":   {inboxredis.Marshaller{IDField: "x", PayloadField: "x"}, fields{"x": "1"}, "1", "1", message.Metadata{}},
		"bytes are kept":       {named, fields{"order": " Ä\xff\x00", "body": "\x00\xff", "\xff": "\xfe"}, " Ä\xff\x00", "\x00\xff", message.Metadata{"\xff": "\xfe"}},
		"names are exact":      {named, fields{"Order": "1", "order ": "2"}, "", "", message.Metadata{"Order": "1", "order ": "2"}},
		"no strings": {named, fields{"order": 1, "body": []byte("b"), "nil": nil, "float": 1.5, "bool": true, "list": []any{1, "a"}},
			"1", "b", message.Metadata{"nil": "", "float": "1.5", "bool": "true", "list": "[1 a]"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := unmarshal(t, test.m, test.values)
			require.Equal(t, test.id, got.UUID)
			require.Equal(t, test.payload, string(got.Payload))
			require.Equal(t, test.metadata, got.Metadata)
		})
	}
}

// Watermill's field makes an entry Watermill's, whatever other producers' fields are called.
func TestUnmarshal_Watermill(t *testing.T) {
	t.Parallel()

	m := inboxredis.Marshaller{IDField: "order", PayloadField: "body"}
	encoded := "\x81\xa1a\xa1b" // {"a": "b"}
	for name, test := range map[string]struct {
		values      fields
		id, payload string
		metadata    message.Metadata
	}{
		"all":                   {fields{uuidField: "w", "payload": "p", "metadata": encoded}, "w", "p", message.Metadata{"a": "b"}},
		"other fields":          {fields{uuidField: "w", "order": "1", "body": "b", "x": "y"}, "w", "", message.Metadata{}},
		"empty UUID, an id":     {fields{uuidField: "", "order": "1", "payload": "p", "metadata": encoded}, "1", "p", message.Metadata{"a": "b"}},
		"empty UUID, no id":     {fields{uuidField: "", "payload": "p", "metadata": encoded}, "", "p", message.Metadata{"a": "b"}},
		"nil":                   {fields{uuidField: nil, "payload": nil, "metadata": nil}, "", "", message.Metadata{}},
		"bytes":                 {fields{uuidField: []byte("w"), "payload": []byte("p"), "metadata": []byte(encoded)}, "w", "p", message.Metadata{"a": "b"}},
		"encoded nil":           {fields{uuidField: "w", "metadata": "\xc0"}, "w", "", message.Metadata{}},
		"metadata in JSON":      {fields{uuidField: "w", "payload": "p", "metadata": `{"a":"b"}`}, "w", "p", message.Metadata{"metadata": `{"a":"b"}`}},
		"metadata cut off":      {fields{uuidField: "w", "payload": "p", "metadata": encoded[:4]}, "w", "p", message.Metadata{"metadata": encoded[:4]}},
		"the UUID's own header": {fields{uuidField: "w", "metadata": "\x81\xb7" + uuidField + "\xa1b"}, "w", "", message.Metadata{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := unmarshal(t, m, test.values)
			require.Equal(t, test.id, got.UUID)
			require.Equal(t, test.payload, string(got.Payload))
			require.Equal(t, test.metadata, got.Metadata)
			_, err := m.Marshal("poison", got)
			require.NoError(t, err)
		})
	}
}

// The two marshallers can be mixed while a system is changed from one to the other.
func TestMarshaller_and_the_default_read_each_other(t *testing.T) {
	t.Parallel()

	msg := message.NewMessage("w", []byte("payload"))
	msg.Metadata.Set("Key", "Value")
	for _, pair := range [][2]redisstream.MarshallerUnmarshaller{
		{inboxredis.Marshaller{IDField: "x", PayloadField: "y"}, redisstream.DefaultMarshallerUnmarshaller{}},
		{redisstream.DefaultMarshallerUnmarshaller{}, inboxredis.Marshaller{IDField: "x", PayloadField: "y"}},
	} {
		values, err := pair[0].Marshal("topic", msg)
		require.NoError(t, err)
		got, err := pair[1].Unmarshal(overTheWire(values))
		require.NoError(t, err)
		require.True(t, msg.Equals(got))
	}
}

// overTheWire returns what the client reads of what it wrote.
func overTheWire(values fields) fields {
	read := fields{}
	for name, value := range values {
		if bytes, ok := value.([]byte); ok {
			value = string(bytes)
		}
		read[name] = value
	}
	return read
}
