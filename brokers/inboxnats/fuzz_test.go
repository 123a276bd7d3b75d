package inboxnats_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/brokers/inboxnats"
)

// FuzzUnmarshal reads headers as they come from the server.
func FuzzUnmarshal(f *testing.F) {
	for _, seed := range []string{
		"",
		"Nats-Msg-Id: order-1\r\n",
		"Nats-Msg-Id: 1\r\nNats-Msg-Id: 2\r\n",
		"_watermill_message_uuid: w\r\nNats-Msg-Id: n\r\nKey: Value\r\n",
		"_watermill_message_uuid:\r\nNats-Msg-Id: Ä \xff\r\n",
		"Nats-Expected-Stream: s\r\nNats-Rollup: all\r\nnats-msg-id: lower\r\n",
	} {
		f.Add([]byte(seed), []byte("payload"))
	}
	f.Fuzz(func(t *testing.T, lines, payload []byte) {
		header, err := nats.DecodeHeadersMsg([]byte("NATS/1.0\r\n" + string(lines) + "\r\n"))
		if err != nil {
			return
		}
		msg := unmarshal(t, &nats.Msg{Header: header, Data: payload})
		want := header.Get(uuidHeader)
		if want == "" {
			want = header.Get(nats.MsgIdHdr)
		}
		require.Equal(t, want, msg.UUID)
		require.Equal(t, string(payload), string(msg.Payload))
		require.NotContains(t, msg.Metadata, uuidHeader)
	})
}

// FuzzMarshal publishes any message: its UUID arrives exactly, or is refused.
func FuzzMarshal(f *testing.F) {
	f.Add("uuid", "Key", "Value", []byte("payload"))
	f.Add("", nats.MsgIdHdr, "inherited", []byte(nil))
	f.Add(" blank", uuidHeader, "inherited", []byte("p"))
	f.Add("line\nbreak", "no token", "v", []byte("p"))
	f.Add("Ä\xff\x00:", "cloudEvents:id", "v\r\nNats-Msg-Id: smuggled", []byte("p"))
	f.Fuzz(func(t *testing.T, uuid, key, value string, payload []byte) {
		msg := message.NewMessage(uuid, payload)
		msg.Metadata.Set(key, value)
		natsMsg, err := inboxnats.Marshaler{}.Marshal("topic", msg)
		if err != nil {
			return
		}
		received := overTheWire(t, natsMsg)
		got := unmarshal(t, received)
		require.Equal(t, uuid, got.UUID)
		require.Equal(t, uuid, received.Header.Get(nats.MsgIdHdr))
		require.Equal(t, string(payload), string(got.Payload))
	})
}
