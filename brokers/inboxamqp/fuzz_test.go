package inboxamqp_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

// FuzzUnmarshal makes headers of all types that AMQP has. Any message is accepted, and twice in the same way.
func FuzzUnmarshal(f *testing.F) {
	for _, seed := range []string{
		"", "Sabc\x00", "t\x01", "B\xc8", "b\x80", "s\x80\x00", "I\x00\x00\x00\x07", "l\x80\x00\x00\x00\x00\x00\x00\x00",
		"f\x7f\xc0\x00\x00", "d\x7f\xf0\x00\x00\x00\x00\x00\x00", "D\x02\x80\x00\x00\x00", "T\x80\x00\x00\x00\x00\x00\x00\x00", "x\xff\xfe\x00", "V",
		"A\x03I\x00\x00\x00\x07VSa\x00", "F\x02key\x00A\x01F\x00other\x00f\x7f\x80\x00\x00",
	} {
		f.Add([]byte(seed), []byte("Suuid"), "key", "message-id", []byte("payload"))
		f.Add([]byte("Svalue"), []byte(seed), "amqp_timestamp", "", []byte(nil))
	}
	f.Fuzz(func(t *testing.T, value, uuid []byte, key, messageID string, payload []byte) {
		deliver := func() amqp091.Delivery {
			headers := amqp091.Table{key: readField(&value, 0)}
			headers[uuidHeader] = readField(&uuid, 0)
			return amqp091.Delivery{Headers: headers, MessageId: messageID, Body: payload, Timestamp: time.Unix(int64(len(value)), 0)}
		}
		given, givenUUID := value, uuid
		delivery := deliver()
		msg := unmarshal(t, delivery)
		value, uuid = given, givenUUID
		require.True(t, msg.Equals(unmarshal(t, deliver())))

		require.Equal(t, string(payload), string(msg.Payload))
		require.NotContains(t, msg.Metadata, uuidHeader)
		switch id := delivery.Headers[uuidHeader].(type) {
		case nil:
			require.Equal(t, messageID, msg.UUID)
		case string:
			if id != "" {
				require.Equal(t, id, msg.UUID)
			}
		}
		if key == uuidHeader {
			return
		}
		switch header := delivery.Headers[key].(type) {
		case string:
			require.Equal(t, header, msg.Metadata[key])
		case amqp091.Table, []any:
			require.True(t, json.Valid([]byte(msg.Metadata[key])), msg.Metadata[key])
		}
	})
}

// readField is the wire format, except that a zero ends a string. The end of the bytes ends everything.
func readField(from *[]byte, depth int) any {
	bits := func(n int) uint64 {
		var eight [8]byte
		*from = (*from)[copy(eight[8-n:], *from):]
		return binary.BigEndian.Uint64(eight[:])
	}
	text := func() string {
		n := 0
		for n < len(*from) && (*from)[n] != 0 {
			n++
		}
		read := string((*from)[:n])
		*from = (*from)[min(n+1, len(*from)):]
		return read
	}
	switch kind := byte(bits(1)); {
	case kind == 't':
		return bits(1) != 0
	case kind == 'B':
		return byte(bits(1))
	case kind == 'b':
		return int8(bits(1))
	case kind == 's':
		return int16(bits(2))
	case kind == 'I':
		return int32(bits(4))
	case kind == 'l':
		return int64(bits(8))
	case kind == 'f':
		return math.Float32frombits(uint32(bits(4)))
	case kind == 'd':
		return math.Float64frombits(bits(8))
	case kind == 'D':
		return amqp091.Decimal{Scale: byte(bits(1)), Value: int32(bits(4))}
	case kind == 'T':
		return time.Unix(int64(bits(8)), 0)
	case kind == 'S':
		return text()
	case kind == 'x':
		return []byte(text())
	case kind == 'A' && depth < 10:
		array := []any{}
		for range bits(1) % 10 {
			array = append(array, readField(from, depth+1))
		}
		return array
	case kind == 'F' && depth < 10:
		table := amqp091.Table{}
		for range bits(1) % 10 {
			key := text()
			table[key] = readField(from, depth+1)
		}
		return table
	}
	return nil
}
