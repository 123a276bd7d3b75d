package inbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// FromMetadata and its companions give the bytes that are there, or an error that names the key.
func FuzzMetadataIdentity(f *testing.F) {
	f.Add("event_id", "e1", "source", "shop", true)
	f.Add("event_id", "", "source", "", true)
	f.Add("", "\x00", "\xff", "\xff\x00 ", false)
	f.Add("k", " e1 ", "k", "other", true)
	f.Fuzz(func(t *testing.T, key, value, producerKey, producer string, present bool) {
		msg := message.NewMessage("m", nil)
		msg.Metadata[producerKey] = producer
		if present {
			msg.Metadata[key] = value
		}
		stored, ok := msg.Metadata[key]

		identity, err := inbox.FromMetadata(key)(msg)
		wantIdentity(t, identity, err, inbox.Identity{ID: stored}, ok, key)
		identity, err = inbox.WithProducer(producer, inbox.FromMetadata(key))(msg)
		wantIdentity(t, identity, err, inbox.Identity{Producer: producer, ID: stored}, ok, key)

		named := msg.Metadata[producerKey]
		identity, err = inbox.WithProducerFromMetadata(producerKey, inbox.MessageUUID)(msg)
		wantIdentity(t, identity, err, inbox.Identity{Producer: named, ID: "m"}, named != "", producerKey)

		msg.Metadata = nil
		_, err = inbox.FromMetadata(key)(msg)
		require.ErrorContains(t, err, fmt.Sprintf("%q", key))
	})
}

func wantIdentity(t *testing.T, got inbox.Identity, err error, want inbox.Identity, ok bool, key string) {
	t.Helper()
	if !ok {
		require.ErrorContains(t, err, fmt.Sprintf("%q", key))
		return
	}
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// CloudEvents gives the event's own id and source, byte for byte, or an error; two texts never become one id.
func FuzzCloudEvents(f *testing.F) {
	for _, seed := range []string{
		"1", "", " ", `\u0031`, `a\u0000b`, "\xff", "\xfe", `\ud800`, `\ud801`, `\uD83D\uDE00`, "😀", "\ufffd", `\ufffd`, `\ufffd\ud83d\ude00`,
		`\\ud800`, `","id":"2`, `\"`, `\`, "\n", `1","ID":"2`, strings.Repeat("x", 600),
	} {
		f.Add(seed, "/shop", uint8(0))
		f.Add("1", seed, uint8(1))
		f.Add(seed, seed, uint8(2))
	}
	prefixes := []string{"ce_", "ce-", "cloudEvents:", "cloudEvents_"}
	f.Fuzz(func(t *testing.T, id, source string, prefix uint8) {
		// Binary mode: the metadata as it is.
		msg := message.NewMessage("m", nil)
		name := prefixes[int(prefix)%len(prefixes)]
		msg.Metadata[name+"id"], msg.Metadata[name+"source"] = id, source
		got, err := inbox.CloudEvents(msg)
		require.Equal(t, id != "" && source != "", err == nil)
		if err == nil {
			require.Equal(t, inbox.Identity{Producer: source, ID: id}, got)
		}

		// Structured mode, encoded by a library.
		payload, err := json.Marshal(map[string]string{"specversion": "1.0", "id": id, "source": source})
		require.NoError(t, err)
		got, err = inbox.CloudEvents(message.NewMessage("m", payload))
		require.Equal(t, id != "" && source != "", err == nil)
		if err == nil && utf8.ValidString(id) && utf8.ValidString(source) {
			require.Equal(t, inbox.Identity{Producer: source, ID: id}, got)
		}

		wantExactText(t, id, source)
	})
}

// wantExactText has the two texts as they are between the quotes of a JSON event.
func wantExactText(t *testing.T, id, source string) {
	t.Helper()
	payload := []byte(`{"specversion":"1.0","id":"` + id + `","source":"` + source + `"}`)
	got, err := inbox.CloudEvents(message.NewMessage("m", payload))
	if err != nil {
		return
	}
	require.True(t, utf8.Valid(payload), "what is not UTF-8 was altered: %q", payload)
	require.NotEmpty(t, got.ID)
	require.NotEmpty(t, got.Producer)
	if !json.Valid([]byte(`"`+id+`"`)) || !json.Valid([]byte(`"`+source+`"`)) {
		return // the text ends its string and goes on with others
	}
	require.Equal(t, string(unitsOf(id)), utf16Of(got.ID), "%q became %q", id, got.ID)
	require.Equal(t, string(unitsOf(source)), utf16Of(got.Producer), "%q became %q", source, got.Producer)
}

func utf16Of(text string) string {
	var units []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		units = append(units, byte(unit>>8), byte(unit))
	}
	return string(units)
}
