package inboxamqp_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/brokers/inboxamqp"
)

const uuidHeader = amqp.DefaultMessageUUIDHeaderKey

func unmarshal(t *testing.T, delivery amqp091.Delivery) *message.Message {
	t.Helper()
	msg, err := inboxamqp.Marshaler{}.Unmarshal(delivery)
	require.NoError(t, err)
	return msg
}

func TestUnmarshal_ID(t *testing.T) {
	for name, test := range map[string]struct {
		delivery amqp091.Delivery
		want     string
	}{
		"nothing":            {amqp091.Delivery{}, ""},
		"property":           {amqp091.Delivery{MessageId: "p"}, "p"},
		"header":             {amqp091.Delivery{Headers: amqp091.Table{uuidHeader: "h"}}, "h"},
		"header wins":        {amqp091.Delivery{MessageId: "p", Headers: amqp091.Table{uuidHeader: "h"}}, "h"},
		"empty header":       {amqp091.Delivery{MessageId: "p", Headers: amqp091.Table{uuidHeader: ""}}, "p"},
		"void header":        {amqp091.Delivery{MessageId: "p", Headers: amqp091.Table{uuidHeader: nil}}, "p"},
		"bytes":              {amqp091.Delivery{MessageId: "p", Headers: amqp091.Table{uuidHeader: []byte("h\xff")}}, "h\xff"},
		"number":             {amqp091.Delivery{MessageId: "p", Headers: amqp091.Table{uuidHeader: int64(math.MaxInt64)}}, "9223372036854775807"},
		"other case, blanks": {amqp091.Delivery{MessageId: " P ", Headers: amqp091.Table{strings.ToUpper(uuidHeader): "h"}}, " P "},
	} {
		t.Run(name, func(t *testing.T) {
			msg := unmarshal(t, test.delivery)
			require.Equal(t, test.want, msg.UUID)
			require.NotContains(t, msg.Metadata, uuidHeader)
		})
	}
}

func TestUnmarshal_HeaderKey(t *testing.T) {
	marshaler := inboxamqp.Marshaler{DefaultMarshaler: amqp.DefaultMarshaler{MessageUUIDHeaderKey: "id"}}
	msg, err := marshaler.Unmarshal(amqp091.Delivery{Headers: amqp091.Table{"id": "mine", uuidHeader: "other"}})
	require.NoError(t, err)
	require.Equal(t, "mine", msg.UUID)
	require.Equal(t, message.Metadata{uuidHeader: "other"}, msg.Metadata)
}

func TestUnmarshal_Headers(t *testing.T) {
	at := time.Date(2024, 2, 29, 13, 0, 0, 0, time.FixedZone("", 3600))
	death := amqp091.Table{"count": int64(3), "queue": "<orders>", "time": at, "routing-keys": []any{"a", nil}}
	for name, test := range map[string]struct {
		value any
		want  string
	}{
		"string":           {"text\xff ", "text\xff "},
		"bytes":            {[]byte("text\xff "), "text\xff "},
		"void":             {nil, ""},
		"true":             {true, "true"},
		"byte":             {byte(200), "200"},
		"int8":             {int8(-8), "-8"},
		"int16":            {int16(-16), "-16"},
		"int32":            {int32(-32), "-32"},
		"int64":            {int64(math.MinInt64), "-9223372036854775808"},
		"float32":          {float32(0.1), "0.1"},
		"float64":          {1e300, "1e+300"},
		"not a number":     {math.NaN(), "NaN"},
		"infinite":         {math.Inf(-1), "-Inf"},
		"decimal":          {amqp091.Decimal{Scale: 2, Value: 12345}, "123.45"},
		"small decimal":    {amqp091.Decimal{Scale: 3, Value: -5}, "-0.005"},
		"smallest decimal": {amqp091.Decimal{Scale: 1, Value: math.MinInt32}, "-214748364.8"},
		"whole decimal":    {amqp091.Decimal{Value: -5}, "-5"},
		"time":             {at, "2024-02-29T12:00:00Z"},
		"table": {
			amqp091.Table{"z": "\xff", "a": []byte("b"), "n": math.Inf(1), "d": amqp091.Decimal{Scale: 1, Value: 5}, "f": float32(0.1)},
			`{"a":"Yg==","d":0.5,"f":0.1,"n":"+Inf","z":"` + `\ufffd` + `"}`,
		},
		"x-death": {
			[]any{death},
			`[{"count":3,"queue":"<orders>","routing-keys":["a",null],"time":"2024-02-29T12:00:00Z"}]`,
		},
		"empty array": {[]any{}, "[]"},
		"empty table": {amqp091.Table{}, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			msg := unmarshal(t, amqp091.Delivery{Headers: amqp091.Table{"key": test.value}})
			require.Equal(t, message.Metadata{"key": test.want}, msg.Metadata)
		})
	}
}

var everyProperty = amqp091.Delivery{
	ContentType: "text/json", ContentEncoding: "gzip", ReplyTo: "answers", Type: "OrderPlaced", AppId: "shop", CorrelationId: "c-1",
	Timestamp: time.Unix(1709208000, 0), MessageId: "m", UserId: "guest", Expiration: "1000", Priority: 3, DeliveryMode: 2,
}

func TestUnmarshal_Properties(t *testing.T) {
	want := message.Metadata{
		"amqp_content_type": "text/json", "amqp_content_encoding": "gzip", "amqp_reply_to": "answers", "amqp_type": "OrderPlaced",
		"amqp_app_id": "shop", "correlation_id": "c-1", "amqp_timestamp": "2024-02-29T12:00:00Z",
	}
	require.Equal(t, want, unmarshal(t, everyProperty).Metadata)

	headers := everyProperty
	headers.Headers = amqp091.Table{}
	for key := range want {
		headers.Headers[key] = "of a header"
		want[key] = "of a header"
	}
	require.Equal(t, want, unmarshal(t, headers).Metadata)
}

func TestMarshal(t *testing.T) {
	msg := message.NewMessage("m-1", []byte("payload"))
	msg.Metadata["key"] = "value"
	publishing, err := inboxamqp.Marshaler{}.Marshal(msg)
	require.NoError(t, err)
	require.Equal(t, amqp091.Publishing{
		MessageId: "m-1", Headers: amqp091.Table{uuidHeader: "m-1", "key": "value"}, Body: []byte("payload"), DeliveryMode: amqp091.Persistent,
	}, publishing)

	// Consumers with the default marshaler see no difference.
	got, err := amqp.DefaultMarshaler{}.Unmarshal(amqp091.Delivery{MessageId: publishing.MessageId, Headers: publishing.Headers, Body: publishing.Body})
	require.NoError(t, err)
	require.True(t, msg.Equals(got))
}

// TestMarshal_Properties is the way through a poison queue.
func TestMarshal_Properties(t *testing.T) {
	publishing, err := inboxamqp.Marshaler{}.Marshal(unmarshal(t, everyProperty))
	require.NoError(t, err)
	require.Equal(t, "text/json gzip answers OrderPlaced shop c-1 m", strings.Join([]string{
		publishing.ContentType, publishing.ContentEncoding, publishing.ReplyTo, publishing.Type, publishing.AppId, publishing.CorrelationId,
		publishing.MessageId,
	}, " "))
	require.True(t, everyProperty.Timestamp.Equal(publishing.Timestamp))
}

// TestMarshal_TooLong: the client would cut a short string, and the id would be another one.
func TestMarshal_TooLong(t *testing.T) {
	for length, want := range map[int]int{255: 255, 256: 0, 300: 0} {
		long := strings.Repeat("x", length)
		msg := message.NewMessage(long, nil)
		msg.Metadata[inboxamqp.TypeKey] = long
		publishing, err := inboxamqp.Marshaler{}.Marshal(msg)
		require.NoError(t, err)
		require.Len(t, publishing.MessageId, want)
		require.Len(t, publishing.Type, want)
		require.Equal(t, amqp091.Table{uuidHeader: long, inboxamqp.TypeKey: long}, publishing.Headers)
	}
}

func TestMarshal_Postprocess(t *testing.T) {
	marshaler := inboxamqp.Marshaler{DefaultMarshaler: amqp.DefaultMarshaler{
		NotPersistentDeliveryMode: true,
		PostprocessPublishing: func(publishing amqp091.Publishing) amqp091.Publishing {
			publishing.MessageId += "-changed"
			return publishing
		},
	}}
	publishing, err := marshaler.Marshal(message.NewMessage("m", nil))
	require.NoError(t, err)
	require.Equal(t, "m-changed", publishing.MessageId)
	require.Zero(t, publishing.DeliveryMode)
}
