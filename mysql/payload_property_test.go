package mysql_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

func TestSizesOfPayloads(t *testing.T) {
	onBothServers(t, func(t *testing.T, b *bench, d driver) {
		for _, size := range []int{0, 1, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1 << 20, 16 << 20} {
			b.checkOutgoing(t, d, bytesTopic, outgoing{"out", noise(size), message.Metadata{"size": fmt.Sprint(size)}})
			json := `"` + strings.Repeat("x", max(0, size-2)) + `"`
			b.checkOutgoing(t, d, jsonTopic, outgoing{"out", json, message.Metadata{"size": fmt.Sprint(size)}})
		}
	})
}

// A handler's messages of a middle size made one statement beyond max_allowed_packet. The parameters are sent in two ways.
func TestManyMessagesOfAMiddleSize(t *testing.T) {
	onBothServers(t, func(t *testing.T, b *bench, d driver) {
		if d.name != "default" && d.name != "interpolateParams" {
			return
		}
		b.clear(t)
		var msgs []*message.Message
		var want []outgoing
		for n := range 200 {
			out := outgoing{fmt.Sprint(n), noise(100<<10 + n), message.Metadata{}}
			want, msgs = append(want, out), append(msgs, out.message())
		}
		_, err := b.process(t, d.db, inbox.Row{Consumer: "billing", ID: "m1"}, message.NewMessage("m1", nil), bytesTopic, msgs...)
		require.NoError(t, err)
		require.True(t, reflect.DeepEqual(want, b.outgoing(t, bytesTopic)), "other messages are stored than were published")
	})
}

// At 16 MiB, identities and metadata that is not text are refused in few words.
func TestHugeIdentitiesAndMetadata(t *testing.T) {
	onBothServers(t, func(t *testing.T, b *bench, d driver) {
		huge := strings.Repeat("x", 16<<20)
		b.checkIdentities(t, d, inbox.Row{Consumer: "billing", ID: huge}, inbox.Row{Consumer: "billing", Producer: huge, ID: "m1"}, inbox.Row{Consumer: huge, ID: "m1"})
		b.checkOutgoing(t, d, bytesTopic, outgoing{huge, "", message.Metadata{}})
		b.checkOutgoing(t, d, bytesTopic, outgoing{"out", "", message.Metadata{"key": huge + "\xff"}})
	})
}
