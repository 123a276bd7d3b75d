package inboxnats

import (
	"fmt"
	"strings"

	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Marshaler is the MarshalerUnmarshaler for pkg/nats of watermill-nats. It reads what the default, NATSMarshaler, writes, and the other way round.
type Marshaler struct{}

// Marshal writes payload and metadata as NATSMarshaler does, and the UUID to Nats-Msg-Id as well, for the deduplication of the stream. Metadata
// under the names of these two headers is ignored, so that a message that inherits the metadata of another one is not dropped as its duplicate.
// A message without UUID gets neither header.
//
// It refuses a UUID that a header would not carry exactly: one with a line break, or with blanks around it. nats.go changes
// such values of other headers, and drops headers whose name is no HTTP token ("event id", "cloudEvents:id").
func (Marshaler) Marshal(topic string, msg *message.Message) (*nats.Msg, error) {
	if strings.ContainsAny(msg.UUID, "\r\n") || strings.Trim(msg.UUID, " \t") != msg.UUID {
		return nil, fmt.Errorf("inboxnats: UUID %q: a header cannot carry it exactly", msg.UUID)
	}

	header := make(nats.Header, len(msg.Metadata)+2)
	for key, value := range msg.Metadata {
		header.Set(key, value)
	}
	for _, key := range []string{wmnats.WatermillUUIDHdr, nats.MsgIdHdr} {
		if header.Del(key); msg.UUID != "" {
			header.Set(key, msg.UUID)
		}
	}
	return &nats.Msg{Subject: topic, Header: header, Data: msg.Payload}, nil
}

// Unmarshal takes the UUID from the headers, as the package says, and all other headers as metadata, Nats-Msg-Id included. It never fails: what a
// subscriber cannot unmarshal it does not ack, and the message comes again without end.
//
// Names of headers keep their case. Several values of one header are joined with ", ", and of an id the first one counts, as
// for the server. Left out are the UUID header and the instructions to the server that apply to one publication (Nats-Expected-…, Nats-Rollup, Nats-TTL,
// Nats-Schedule…): a poison queue that repeats them could not be published to, or would purge its stream.
func (Marshaler) Unmarshal(msg *nats.Msg) (*message.Message, error) {
	return newMessage(msg.Header, msg.Data), nil
}

// JetStream is the Unmarshaler for pkg/jetstream of watermill-nats.
type JetStream struct{}

// Unmarshal does what Marshaler.Unmarshal does. (The subscriber of pkg/jetstream panics if an unmarshaler fails, as its default does when a header has
// two values.)
func (JetStream) Unmarshal(msg jetstream.Msg) (*message.Message, error) {
	return newMessage(msg.Headers(), msg.Data()), nil
}

func newMessage(header nats.Header, payload []byte) *message.Message {
	id := first(header, wmnats.WatermillUUIDHdr)
	if id == "" {
		id = first(header, nats.MsgIdHdr)
	}
	msg := message.NewMessage(id, payload)
	for key, values := range header {
		if key != wmnats.WatermillUUIDHdr && !isInstruction(key) {
			msg.Metadata.Set(key, strings.Join(values, ", "))
		}
	}
	return msg
}

// first is Header.Get, which panics at a header without values.
func first(header nats.Header, key string) string {
	if values := header[key]; len(values) > 0 {
		return values[0]
	}
	return ""
}

var instructions = []string{"Nats-Expected-", nats.MsgRollup, "Nats-TTL", "Nats-Schedule"}

func isInstruction(key string) bool {
	for _, prefix := range instructions {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}
