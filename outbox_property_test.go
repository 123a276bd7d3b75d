package inbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// Any message comes back from the forwarder's envelope as it went in, or is refused by name.
func FuzzForwarderEnvelope(f *testing.F) {
	for _, odd := range []string{"", "text", "\x00", "\xff", "a\xed\xa0\x80", "\u2028<>&", `"\ud800`} {
		f.Add(odd, []byte(odd), "key", "value", "topic")
		f.Add("uuid", []byte{}, odd, "value", "topic")
		f.Add("uuid", []byte{}, "key", odd, "topic")
		f.Add("uuid", []byte{}, "key", "value", odd)
	}
	f.Fuzz(func(t *testing.T, uuid string, payload []byte, key, value, topic string) {
		var envelopes []*message.Message
		tx := recordingTx{&envelopes}
		publisher, err := inbox.ForwarderOutbox(wsql.PublisherConfig{SchemaAdapter: tx}, forwarder.PublisherConfig{}, nil)(tx)
		require.NoError(t, err)
		msg := message.NewMessage(uuid, payload)
		msg.Metadata[key] = value
		err = publisher.Publish(topic, msg)
		if !utf8.ValidString(uuid + "." + key + "." + value + "." + topic) {
			require.ErrorIs(t, err, inbox.ErrUnstorable)
			require.Empty(t, envelopes)
			return
		}
		if topic == "" {
			require.ErrorContains(t, err, "unknown destination topic")
			return
		}
		require.NoError(t, err)
		var envelope struct {
			DestinationTopic string `json:"destination_topic"`
			UUID             string `json:"uuid"`
			Payload          []byte `json:"payload"`
			Metadata         message.Metadata
		}
		require.NoError(t, json.Unmarshal(envelopes[0].Payload, &envelope))
		require.Equal(t, []any{topic, uuid, string(payload), msg.Metadata}, []any{envelope.DestinationTopic, envelope.UUID, string(envelope.Payload), envelope.Metadata})
	})
}

// recordingTx is a schema and its transaction that keep the messages.
type recordingTx struct{ msgs *[]*message.Message }

func (r recordingTx) InsertQuery(params wsql.InsertQueryParams) (wsql.Query, error) {
	*r.msgs = append(*r.msgs, params.Msgs...)
	return wsql.Query{}, nil
}

func (recordingTx) SchemaInitializingQueries(wsql.SchemaInitializingQueriesParams) ([]wsql.Query, error) {
	return nil, nil
}

func (recordingTx) SelectQuery(wsql.SelectQueryParams) (wsql.Query, error) {
	return wsql.Query{}, nil
}

func (recordingTx) UnmarshalMessage(wsql.UnmarshalMessageParams) (wsql.Row, error) {
	return wsql.Row{}, nil
}
func (recordingTx) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelDefault }
func (recordingTx) ExecContext(context.Context, string, ...any) (wsql.Result, error) {
	return nil, nil
}
func (recordingTx) QueryContext(context.Context, string, ...any) (wsql.Rows, error) {
	return nil, nil
}

// MySQL outside strict mode cuts a payload that is too long for a BLOB, with nothing but a warning.
func TestPayloadThatIsTooLongForItsColumnIsRefused(t *testing.T) {
	for columnType, size := range map[string]int{"TINYBLOB": 255, "blob": 65_535, " MediumBlob ": 16<<20 - 1, "LONGBLOB": 16 << 20} {
		payloadType := func(string) string { return columnType }
		for _, schema := range []wsql.SchemaAdapter{wsql.DefaultMySQLSchema{GeneratePayloadType: payloadType}, &wsql.MySQLQueueSchema{GeneratePayloadType: payloadType}} {
			var ignored []*message.Message
			publisher, err := inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: schema}, nil)(recordingTx{&ignored})
			require.NoError(t, err)
			require.NoError(t, publisher.Publish("out", message.NewMessage("o", make([]byte, size))), columnType)
			if columnType != "LONGBLOB" {
				err = publisher.Publish("out", message.NewMessage("o", make([]byte, size+1)))
				require.ErrorContains(t, err, fmt.Sprintf("payload has %d bytes", size+1))
				require.ErrorContains(t, err, "LONGBLOB")
			}
		}
	}
}

// The text of an incoming correlation id, which the inbox passes on, was altered on its way into the outbox.
func TestCorrelationIDThatIsNoTextIsPoison(t *testing.T) {
	d := newDesk(t, inbox.Config{})
	msg := message.NewMessage("m1", nil)
	middleware.SetCorrelationID("a\xffb", msg)
	_, err := d.Process(msg, func(ctx context.Context) error {
		return d.Publisher().Publish("out", message.NewMessageWithContext(ctx, "o1", []byte("{}")))
	})
	require.ErrorIs(t, err, inbox.ErrUnstorable)
	require.ErrorContains(t, err, `"a\xffb"`)
	require.True(t, inbox.IsPoison(err) && !inbox.IsRetryable(err))
	d.want(t, 0, 0, 0)
}

// A handler's many messages of a middle size made one statement of hundreds of megabytes.
func TestBatchesAreBoundedInBytes(t *testing.T) {
	var sizes []int
	d := newDesk(t, inbox.Config{OutboxDecorators: []message.PublisherDecorator{
		func(next message.Publisher) (message.Publisher, error) {
			return publisherFunc(func(topic string, msgs ...*message.Message) error {
				size := 0
				for _, msg := range msgs {
					size += len(msg.Payload)
				}
				sizes = append(sizes, size)
				require.True(t, size <= 1<<20 || len(msgs) == 1, "%d messages of %d bytes in one statement", len(msgs), size)
				return next.Publish(topic, msgs...)
			}), nil
		},
	}})
	_, err := d.Process(message.NewMessage("m1", nil), func(ctx context.Context) error {
		var msgs []*message.Message
		for n := range 30 {
			payload := strings.Repeat("x", 100_000)
			if n == 7 {
				payload = strings.Repeat("x", 3<<20)
			}
			msgs = append(msgs, message.NewMessageWithContext(ctx, fmt.Sprint(n), []byte(payload)))
		}
		return d.Publisher().Publish("out", msgs...)
	})
	require.NoError(t, err)
	require.Len(t, sizes, 5)
	d.want(t, 0, 1, 30)
	rows, err := d.db.Query(`SELECT uuid FROM watermill_out ORDER BY "offset"`)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for n := 0; rows.Next(); n++ {
		var uuid string
		require.NoError(t, rows.Scan(&uuid))
		require.Equal(t, fmt.Sprint(n), uuid, "the batches changed the order")
	}
}
