package inboxnats_test

import (
	"bytes"
	"net/http"
	"testing"

	wmjetstream "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/jetstream"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/brokers/inboxnats"
)

var (
	_ wmnats.MarshalerUnmarshaler = inboxnats.Marshaler{}
	_ wmjetstream.Unmarshaler     = inboxnats.JetStream{}
)

const uuidHeader = wmnats.WatermillUUIDHdr

// jetStreamMsg is what JetStream needs of a message.
type jetStreamMsg struct {
	jetstream.Msg
	msg *nats.Msg
}

func (m jetStreamMsg) Headers() nats.Header { return m.msg.Header }
func (m jetStreamMsg) Data() []byte         { return m.msg.Data }

// unmarshal checks that both unmarshalers say the same.
func unmarshal(t testing.TB, msg *nats.Msg) *message.Message {
	t.Helper()
	got, err := inboxnats.Marshaler{}.Unmarshal(msg)
	require.NoError(t, err)
	other, err := inboxnats.JetStream{}.Unmarshal(jetStreamMsg{msg: msg})
	require.NoError(t, err)
	require.Equal(t, got.UUID, other.UUID)
	require.Equal(t, got.Metadata, other.Metadata)
	require.Equal(t, got.Payload, other.Payload)
	return got
}

// overTheWire returns what nats.go makes of the message.
func overTheWire(t testing.TB, msg *nats.Msg) *nats.Msg {
	t.Helper()
	var wire bytes.Buffer
	wire.WriteString("NATS/1.0\r\n")
	require.NoError(t, http.Header(msg.Header).Write(&wire))
	wire.WriteString("\r\n")
	header, err := nats.DecodeHeadersMsg(wire.Bytes())
	require.NoError(t, err)
	return &nats.Msg{Subject: msg.Subject, Header: header, Data: msg.Data}
}

func TestUnmarshal(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		header   nats.Header
		id       string
		metadata message.Metadata
	}{
		"no headers at all":     {nil, "", message.Metadata{}},
		"no id":                 {nats.Header{"a": {"b"}}, "", message.Metadata{"a": "b"}},
		"Watermill's UUID":      {nats.Header{uuidHeader: {"w"}}, "w", message.Metadata{}},
		"another producer's id": {nats.Header{nats.MsgIdHdr: {"n"}}, "n", message.Metadata{nats.MsgIdHdr: "n"}},
		"both":                  {nats.Header{uuidHeader: {"w"}, nats.MsgIdHdr: {"n"}}, "w", message.Metadata{nats.MsgIdHdr: "n"}},
		"an empty UUID":         {nats.Header{uuidHeader: {""}, nats.MsgIdHdr: {"n"}}, "n", message.Metadata{nats.MsgIdHdr: "n"}},
		"a UUID without values": {nats.Header{uuidHeader: {}, nats.MsgIdHdr: {"n"}}, "n", message.Metadata{nats.MsgIdHdr: "n"}},
		"several values":        {nats.Header{nats.MsgIdHdr: {"1", "2"}, "a": {"b", "c"}}, "1", message.Metadata{nats.MsgIdHdr: "1, 2", "a": "b, c"}},
		"case is kept":          {nats.Header{"nats-msg-id": {"n"}}, "", message.Metadata{"nats-msg-id": "n"}},
		"bytes are kept":        {nats.Header{nats.MsgIdHdr: {"Ä ä\xff "}}, "Ä ä\xff ", message.Metadata{nats.MsgIdHdr: "Ä ä\xff "}},
		"instructions": {nats.Header{
			nats.ExpectedLastMsgIdHdr: {"m"}, nats.ExpectedStreamHdr: {"s"}, nats.ExpectedLastSeqHdr: {"1"}, nats.ExpectedLastSubjSeqHdr: {"1"},
			nats.MsgRollup: {"all"}, "Nats-TTL": {"1h"}, "Nats-Schedule-Next": {"x"}, nats.JSStream: {"kept"},
		}, "", message.Metadata{nats.JSStream: "kept"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			got := unmarshal(t, &nats.Msg{Header: test.header, Data: []byte("payload")})
			require.Equal(t, test.id, got.UUID)
			require.Equal(t, test.metadata, got.Metadata)
			require.Equal(t, message.Payload("payload"), got.Payload)
		})
	}
}

func TestMarshal(t *testing.T) {
	t.Parallel()

	msg := message.NewMessage("new", []byte("payload"))
	msg.Metadata = message.Metadata{"a": "b", nats.MsgIdHdr: "inherited", uuidHeader: "inherited"}
	got, err := inboxnats.Marshaler{}.Marshal("topic", msg)
	require.NoError(t, err)
	require.Equal(t, "topic", got.Subject)
	require.Equal(t, []byte("payload"), got.Data)
	require.Equal(t, nats.Header{"a": {"b"}, nats.MsgIdHdr: {"new"}, uuidHeader: {"new"}}, got.Header)

	msg.UUID = ""
	got, err = inboxnats.Marshaler{}.Marshal("topic", msg)
	require.NoError(t, err)
	require.Equal(t, nats.Header{"a": {"b"}}, got.Header)
}

func TestMarshal_refuses_a_UUID_that_would_change(t *testing.T) {
	t.Parallel()

	for _, uuid := range []string{" a", "a ", "\ta", "a\r", "a\nb"} {
		_, err := inboxnats.Marshaler{}.Marshal("topic", message.NewMessage(uuid, nil))
		require.ErrorContains(t, err, "cannot carry it exactly", "%q", uuid)
	}
}

// The two marshalers can be mixed while a system is changed from one to the other.
func TestMarshaler_and_the_default_read_each_other(t *testing.T) {
	t.Parallel()

	msg := message.NewMessage("w", []byte("payload"))
	msg.Metadata.Set("Key", "Value")
	for _, pair := range [][2]wmnats.MarshalerUnmarshaler{
		{inboxnats.Marshaler{}, &wmnats.NATSMarshaler{}},
		{&wmnats.NATSMarshaler{}, inboxnats.Marshaler{}},
	} {
		natsMsg, err := pair[0].Marshal("topic", msg)
		require.NoError(t, err)
		got, err := pair[1].Unmarshal(overTheWire(t, natsMsg))
		require.NoError(t, err)
		require.Equal(t, "w", got.UUID)
		require.Equal(t, message.Payload("payload"), got.Payload)
		require.Equal(t, message.Metadata{"Key": "Value"}, got.Metadata)
	}
}
