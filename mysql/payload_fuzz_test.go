package mysql_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// Any payload, UUID and metadata pass from the incoming message into the outbox byte for byte, or the delivery fails by name and nothing stays.
func FuzzPayloadMySQL(f *testing.F) { fuzzPayload(f, servers["mysql"]) }

// FuzzPayloadMariaDB is FuzzPayloadMySQL on MariaDB.
func FuzzPayloadMariaDB(f *testing.F) { fuzzPayload(f, servers["mariadb"]) }

func fuzzPayload(f *testing.F, server server) {
	b := newBench(f, server)
	for _, odd := range append(oddTexts(), "{}", `{"a" : 1, "a": 1.0}`, `"\ud800"`, `"\u0000"`, "\"\xff\"", "null", "1e999", strings.Repeat("u", 36), strings.Repeat("u", 37), strings.Repeat("ä", 36), strings.Repeat("ä", 37)) {
		f.Add("out", []byte(odd), "key", "value", uint8(0))
		f.Add("out", []byte(odd), "key", "value", uint8(1))
		f.Add(odd, []byte("{}"), "key", "value", uint8(2))
		f.Add("out", []byte("{}"), odd, "value", uint8(4))
		f.Add("out", []byte("{}"), "correlation_id", odd, uint8(7))
	}
	f.Fuzz(func(t *testing.T, uuid string, payload []byte, key, value string, variant uint8) {
		topic := []string{bytesTopic, jsonTopic}[variant%2]
		d := b.drivers[int(variant/2)%len(b.drivers)]
		b.checkOutgoing(t, d, topic, outgoing{uuid, string(payload), message.Metadata{key: value}})
	})
}

// verdict is whether an outgoing message is stored.
type verdict int

const (
	fits      verdict = iota
	refusable         // the server may refuse it
	refusal           // the inbox refuses it before the insert
	tooLarge          // the server ends the connection
)

func (b *bench) judge(topic string, out outgoing) verdict {
	text := utf8.ValidString(out.uuid)
	for key, value := range out.metadata {
		text = text && utf8.ValidString(key) && utf8.ValidString(value)
	}
	payload := []byte(out.payload)
	switch {
	case !text, utf8.RuneCountInString(out.uuid) > 36, topic == jsonTopic && !(json.Valid(payload) && utf8.Valid(payload)):
		return refusal
	case len(payload) >= b.maxPacket:
		return tooLarge
	case topic == jsonTopic:
		return refusable
	}
	return fits
}

func (out outgoing) message() *message.Message {
	msg := message.NewMessage(out.uuid, []byte(out.payload))
	msg.Metadata = maps.Clone(out.metadata)
	return msg
}

func (b *bench) checkOutgoing(t *testing.T, d driver, topic string, out outgoing) {
	t.Helper()
	b.clear(t)
	row := inbox.Row{Consumer: "billing", ID: "m1"}
	_, err := b.process(t, d.db, row, out.message(), topic, out.message())
	switch want := b.judge(topic, out); {
	case err != nil && want != fits:
		require.ErrorContains(t, err, `consumer "billing": message "m1": outbox`)
		require.Less(t, len(err.Error()), 20_000)
		require.Equal(t, want == refusal, strings.Contains(err.Error(), "outgoing message "), "%v", err)
		require.True(t, want != tooLarge || strings.Contains(err.Error(), "max_allowed_packet"), "%v", err)
		require.Equal(t, want == refusal && errors.Is(err, inbox.ErrUnstorable), inbox.IsPoison(err), "%v", err)
		require.Empty(t, b.stored(t))
		require.Empty(t, b.outgoing(t, topic))
		topic, out = bytesTopic, outgoing{"out", "{}", message.Metadata{"then": "a message that fits"}}
		_, err = b.process(t, d.db, row, out.message(), topic, out.message())
	case want == refusal || want == tooLarge:
		t.Fatalf("%q was stored", out)
	}
	require.NoError(t, err)
	stored := b.outgoing(t, topic)
	if topic == jsonTopic && !b.mariaDB && len(stored) == 1 {
		stored[0].payload = out.payload // MySQL keeps the value and not the text, as SQLOutbox says
	}
	require.Equal(t, []outgoing{out}, stored)

	outcome, err := b.process(t, d.db, row, out.message(), topic)
	require.NoError(t, err)
	require.Equal(t, inbox.Duplicate, outcome)
	other := out
	other.payload += "\x00"
	_, err = b.process(t, d.db, row, other.message(), topic)
	var mismatch *inbox.MismatchError
	require.ErrorAs(t, err, &mismatch)
}

// noise is a payload that no engine can compress, the same every time.
func noise(size int) string {
	random, bytes := rand.New(rand.NewPCG(1, uint64(size))), make([]byte, size)
	for n := range bytes {
		bytes[n] = byte(random.Uint32())
	}
	return string(bytes)
}
