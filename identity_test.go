package inbox_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

func newMessage(uuid, payload string, metadata message.Metadata) *message.Message {
	msg := message.NewMessage(uuid, []byte(payload))
	for key, value := range metadata {
		msg.Metadata.Set(key, value)
	}
	return msg
}

func TestIdentityFuncs(t *testing.T) {
	for name, test := range map[string]struct {
		identity inbox.IdentityFunc
		msg      *message.Message
		want     inbox.Identity
		fails    bool
	}{
		"uuid": {inbox.MessageUUID, newMessage("u1", "", nil), inbox.Identity{ID: "u1"}, false},
		"metadata": {
			inbox.FromMetadata("event_id"), newMessage("u1", "", message.Metadata{"event_id": " e1 "}), inbox.Identity{ID: " e1 "}, false,
		},
		"metadata is missing": {inbox.FromMetadata("event_id"), newMessage("u1", "", nil), inbox.Identity{}, true},
		"fixed producer": {
			inbox.WithProducer("shop", inbox.MessageUUID), newMessage("u1", "", nil), inbox.Identity{Producer: "shop", ID: "u1"}, false,
		},
		"producer from metadata": {
			inbox.WithProducerFromMetadata("source", inbox.MessageUUID), newMessage("u1", "", message.Metadata{"source": "shop"}),
			inbox.Identity{Producer: "shop", ID: "u1"}, false,
		},
		"producer is missing": {inbox.WithProducerFromMetadata("source", inbox.MessageUUID), newMessage("u1", "", nil), inbox.Identity{}, true},
		"CloudEvents on Kafka": {
			inbox.CloudEvents, newMessage("u1", "", message.Metadata{"ce_id": "1", "ce_source": "/shop"}), inbox.Identity{Producer: "/shop", ID: "1"}, false,
		},
		"CloudEvents on HTTP": {
			inbox.CloudEvents, newMessage("u1", "", message.Metadata{"Ce-Id": "1", "Ce-Source": "/shop"}), inbox.Identity{Producer: "/shop", ID: "1"}, false,
		},
		"CloudEvents on AMQP": {
			inbox.CloudEvents, newMessage("u1", "", message.Metadata{"cloudEvents:id": "1", "cloudEvents:source": "/shop"}),
			inbox.Identity{Producer: "/shop", ID: "1"}, false,
		},
		"CloudEvents in the payload": {
			inbox.CloudEvents, newMessage("u1", `{"specversion":"1.0","id":"1","source":"/shop"}`, nil), inbox.Identity{Producer: "/shop", ID: "1"}, false,
		},
		"no CloudEvent in the payload": {inbox.CloudEvents, newMessage("u1", `{"id":"1","source":"/shop"}`, nil), inbox.Identity{}, true},
		"CloudEvents without source":   {inbox.CloudEvents, newMessage("u1", `{"id":"1"}`, message.Metadata{"ce_id": "1"}), inbox.Identity{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := test.identity(test.msg)
			if test.fails {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestFingerprints(t *testing.T) {
	sum := func(f inbox.FingerprintFunc, msg *message.Message) string {
		t.Helper()
		fingerprint, err := f(msg)
		require.NoError(t, err)
		return fingerprint.String()
	}

	a, b := newMessage("1", `{"a":1,"b":2}`, nil), newMessage("2", ` {"b":2, "a":1} `, nil)
	require.NotEqual(t, sum(inbox.PayloadSHA256, a), sum(inbox.PayloadSHA256, b))
	require.Equal(t, sum(inbox.CanonicalJSONSHA256, a), sum(inbox.CanonicalJSONSHA256, b))
	require.NotEqual(t, sum(inbox.CanonicalJSONSHA256, a), sum(inbox.CanonicalJSONSHA256, newMessage("3", `{"a":1,"b":3}`, nil)))

	// What is no JSON, or has more than one reading, is compared byte by byte, under the same name.
	seen := map[string]string{}
	for _, payload := range []string{"no JSON", "no  JSON", "1 2", "1  2", "", "1", "\"\xff\"", "\"\xfe\"", "\"\ufffd\"", `"\ud800"`, `"\uD801"`} {
		fingerprint, err := inbox.CanonicalJSONSHA256(newMessage("4", payload, nil))
		require.NoError(t, err)
		require.Equal(t, "sha256-json", fingerprint.Name)
		require.NotContains(t, seen, fingerprint.String(), "%q and %q", payload, seen[fingerprint.String()])
		seen[fingerprint.String()] = payload
	}

	require.Equal(t, "none", sum(inbox.NoFingerprint, a))
}

func TestPayloadAndMetadataSHA256(t *testing.T) {
	f := inbox.PayloadAndMetadataSHA256("type", "tenant")
	seen := map[string]string{}
	for name, msg := range map[string]*message.Message{
		"none":        newMessage("1", "p", nil),
		"empty":       newMessage("1", "p", message.Metadata{"type": ""}),
		"type":        newMessage("1", "p", message.Metadata{"type": "x"}),
		"tenant":      newMessage("1", "p", message.Metadata{"tenant": "x"}),
		"both":        newMessage("1", "p", message.Metadata{"tenant": "x", "type": "x"}),
		"moved bytes": newMessage("1", "xp", message.Metadata{"type": ""}),
	} {
		fingerprint, err := f(msg)
		require.NoError(t, err)
		require.Empty(t, seen[fingerprint.String()], name)
		seen[fingerprint.String()] = name
	}

	ignored, err := f(newMessage("1", "p", message.Metadata{"type": "x", "trace": "1"}))
	require.NoError(t, err)
	require.Equal(t, "type", seen[ignored.String()])

	same, err := inbox.PayloadAndMetadataSHA256("tenant", "type", "type")(newMessage("1", "p", nil))
	require.NoError(t, err)
	require.Equal(t, "none", seen[same.String()], "order and repetition of the keys do not matter")

	other, err := inbox.PayloadAndMetadataSHA256("type")(newMessage("1", "p", nil))
	require.NoError(t, err)
	require.NotEqual(t, same.Name, other.Name, "another set of keys is another function")
}
