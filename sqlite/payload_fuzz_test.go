package sqlite_test

import (
	"fmt"
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
func FuzzPayload(f *testing.F) {
	b := newBench(f)
	for _, odd := range append(oddTexts(), "{}", `{"a":1}`, `"\ud800"`, "null") {
		f.Add("out", []byte(odd), "key", "value")
		f.Add(odd, []byte("{}"), "key", "value")
		f.Add("out", []byte("{}"), odd, "value")
		f.Add("out", []byte("{}"), "correlation_id", odd)
	}
	f.Fuzz(func(t *testing.T, uuid string, payload []byte, key, value string) {
		b.checkOutgoing(t, uuid, payload, message.Metadata{key: value})
	})
}

func (b *bench) checkOutgoing(t *testing.T, uuid string, payload []byte, metadata message.Metadata) {
	t.Helper()
	b.clear(t)
	row := inbox.Row{Consumer: "billing", ID: "m1"}
	incoming := func(payload []byte) *message.Message {
		msg := message.NewMessage(uuid, payload)
		msg.Metadata = maps.Clone(metadata)
		return msg
	}
	out := message.NewMessage(uuid, payload)
	out.Metadata = maps.Clone(metadata)

	_, err := b.process(t, row, incoming(payload), out)
	if !isText(metadata) {
		require.ErrorIs(t, err, inbox.ErrUnstorable)
		require.ErrorContains(t, err, "metadata")
		require.True(t, inbox.IsPoison(err) && !inbox.IsRetryable(err))
		require.Less(t, len(err.Error()), 20_000)
		require.Empty(t, b.stored(t))
		require.Empty(t, b.outgoing(t))
		return
	}
	require.NoError(t, err)
	require.Equal(t, []outgoing{{uuid, string(payload), metadata}}, b.outgoing(t))

	outcome, err := b.process(t, row, incoming(payload))
	require.NoError(t, err)
	require.Equal(t, inbox.Duplicate, outcome)
	_, err = b.process(t, row, incoming(append(payload[:len(payload):len(payload)], 0)))
	var mismatch *inbox.MismatchError
	require.ErrorAs(t, err, &mismatch)
	require.Len(t, b.outgoing(t), 1)
}

func isText(metadata message.Metadata) bool {
	for key, value := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return false
		}
	}
	return true
}

// noise is a payload that no engine can compress, the same every time.
func noise(size int) []byte {
	random, bytes := rand.New(rand.NewPCG(1, uint64(size))), make([]byte, size)
	for n := range bytes {
		bytes[n] = byte(random.Uint32())
	}
	return bytes
}

func TestSizesOfPayloads(t *testing.T) {
	b := newBench(t)
	for _, size := range []int{0, 1, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1 << 20, 16 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			b.checkOutgoing(t, "out", noise(size), message.Metadata{"size": fmt.Sprint(size)})
		})
	}
}

// Everything but the payload at 16 MiB: identities and metadata that is not UTF-8 are refused in few words, an outgoing UUID is stored.
func TestHugeIdentitiesAndMetadata(t *testing.T) {
	b := newBench(t)
	huge := strings.Repeat("x", 16<<20)
	b.checkIdentities(t, inbox.Row{Consumer: "billing", ID: huge}, inbox.Row{Consumer: "billing", Producer: huge, ID: "m1"}, inbox.Row{Consumer: huge, ID: "m1"})
	b.checkOutgoing(t, huge, nil, message.Metadata{"key": "value"})
	b.checkOutgoing(t, "out", nil, message.Metadata{"key": huge + "\xff"})
}
