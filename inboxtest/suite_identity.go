package inboxtest

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

var identityCases = []testCase{
	{name: "I2_RepetitionDoesNotRunTheHandler", run: repetitionDoesNotRunTheHandler, variants: true},
	{name: "T16_IdentitiesAreOpaque", run: identitiesAreOpaque, variants: true},
	{name: "T16_LongestIdentity", run: longestIdentity},
}

func repetitionDoesNotRunTheHandler(t *testing.T, f *fixture) {
	c := f.consumer(t, inbox.Config{}, f.writes)
	for range 5 {
		wantAck(t, c.deliver(newMessage("m1")))
	}
	c.wantCalls(t, 1)
	f.want(t, rows{biz: 1, inbox: 1})

	calls := 0
	process := func(id string) (inbox.Outcome, error) {
		return c.inbox.Process(newMessage(id), func(ctx context.Context) error {
			calls++
			return f.write(ctx, id, calls)
		})
	}
	for n, want := range []inbox.Outcome{inbox.Processed, inbox.Duplicate, inbox.Duplicate} {
		if got, err := process("m2"); got != want || err != nil {
			t.Fatalf("Process, delivery %d: %v, %v; want %v", n+1, got, err, want)
		}
	}
	if got, err := process("m1"); got != inbox.Duplicate || err != nil || calls != 1 {
		t.Fatalf("Process of what Middleware processed: %v, %v, %d calls", got, err, calls)
	}
	f.want(t, rows{biz: 2, inbox: 2})
}

// opaque are strings of which no two are one identity, though each resembles another for some collation, trimming or escaping.
func opaque() []string {
	return []string{
		"abc", "Abc", "abc ", "abc  ", " abc", "abc\t", "abc\n", "abc\x00", "abc\x00\x00", "ab", "abcd",
		"ábc", "a\u0301bc", "ａｂｃ", "ß", "ss", "ﬁ", "fi", "i", "ı", "İ", "💶", "e\u200b", "e", "\ufeffe",
		"\x00", "\xff", "\xff\xfe", "\xc3\x28", "\xed\xa0\x80", "a\x00b", "a",
		"'", "''", `"`, "`", `\`, `\\`, `\'`, `\0`, "%", "_", "?", "??", "$1", "$$", ":id", "@id", "--", "/*", ";", "#",
		"'); DROP TABLE biz; --", "\\x6162", "0x6162", "X'6162'", "NULL", "0", "00", "0.0", "1e0", "1", "true",
	}
}

// fromMetadata is an identity whose producer may be anything.
func fromMetadata(msg *message.Message) (inbox.Identity, error) {
	return inbox.Identity{Producer: msg.Metadata["producer"], ID: msg.UUID}, nil
}

func newMessageOf(producer, id string) *message.Message {
	msg := newMessage(id)
	msg.Metadata["producer"] = producer
	return msg
}

// identitiesAreOpaque has each of these strings as id, as producer and as consumer.
func identitiesAreOpaque(t *testing.T, f *fixture) {
	pool := f.pool(t, 2)
	var keys []inbox.Row
	for _, odd := range opaque() {
		keys = append(keys, inbox.Row{Consumer: "billing", ID: odd}, inbox.Row{Consumer: "billing", Producer: odd, ID: "m1"}, inbox.Row{Consumer: odd, ID: "m1"})
	}
	consumers := map[string]*consumer{}
	for _, key := range keys {
		if consumers[key.Consumer] == nil {
			consumers[key.Consumer] = f.consumerOn(t, pool, inbox.Config{Consumer: key.Consumer, Identity: fromMetadata}, f.writesStep)
		}
	}
	deliver := func(key inbox.Row) (calls int64) {
		c := consumers[key.Consumer]
		before := c.calls.Load()
		wantAck(t, c.deliver(newMessageOf(key.Producer, key.ID)))
		return c.calls.Load() - before
	}
	for _, key := range keys {
		if deliver(key) != 1 {
			t.Fatalf("%q was taken for an identity before it", key)
		}
	}
	for _, key := range keys {
		if deliver(key) != 0 {
			t.Fatalf("%q was not recognised", key)
		}
	}
	f.want(t, rows{biz: len(keys), inbox: len(keys)})
	f.wantStored(t, keys...)
}

// noise is a string of bytes that no engine can compress, the same every time.
func noise(length int) string {
	random, bytes := rand.New(rand.NewPCG(1, uint64(length))), make([]byte, length)
	for n := range bytes {
		bytes[n] = byte(random.Uint32())
	}
	return string(bytes)
}

// longestIdentity has all parts as long as they may be, and ids that differ in the last byte only or end before it.
func longestIdentity(t *testing.T, f *fixture) {
	consumer, producer, id := noise(inbox.MaxConsumerLength), noise(inbox.MaxProducerLength), noise(inbox.MaxIDLength-1)
	c := f.consumer(t, inbox.Config{Consumer: consumer, Identity: fromMetadata}, f.writesStep)
	var want []inbox.Row
	for _, id := range []string{id, id + " ", id + "\x00", id + "a", id + "A", strings.Repeat(" ", inbox.MaxIDLength-1) + "a"} {
		for range 2 {
			wantAck(t, c.deliver(newMessageOf(producer, id)))
		}
		want = append(want, inbox.Row{Consumer: consumer, Producer: producer, ID: id})
	}
	c.wantCalls(t, int64(len(want)))
	f.want(t, rows{biz: len(want), inbox: len(want)})
	f.wantStored(t, want...)
}
