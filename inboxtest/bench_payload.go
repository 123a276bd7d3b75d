package inboxtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// FuzzPayload tries any UUID, payload and metadata: they pass from the incoming message into the outbox byte for byte, or the delivery fails by
// name and nothing stays. Its corpus has the UUID, the payload, a key and its value, and a byte that chooses outbox and driver if there are several.
func FuzzPayload(f *testing.F, b Bench) {
	outboxes := 1
	if b.JSONOutbox != nil {
		outboxes = 2
	}
	check := func(t *testing.T, uuid string, payload []byte, key, value string, variant uint8) {
		driver := b.Drivers[int(variant)/outboxes%len(b.Drivers)]
		b.checkProduced(t, driver, int(variant)%outboxes == 1, produced{uuid, string(payload), message.Metadata{key: value}})
	}
	if outboxes*len(b.Drivers) == 1 {
		addPayloads(func(uuid string, payload []byte, key, value string, _ uint8) { f.Add(uuid, payload, key, value) })
		f.Fuzz(func(t *testing.T, uuid string, payload []byte, key, value string) {
			check(t, uuid, payload, key, value, 0)
		})
		return
	}
	addPayloads(func(uuid string, payload []byte, key, value string, variant uint8) {
		f.Add(uuid, payload, key, value, variant)
	})
	f.Fuzz(check)
}

func addPayloads(add func(uuid string, payload []byte, key, value string, variant uint8)) {
	odds := append(oddTexts(),
		"{}", `{"a":1}`, `{"a" : 1, "a": 1.0}`, `"\ud800"`, `"\u0000"`, "\"\xff\"", "null", "1e999",
		strings.Repeat("u", 36), strings.Repeat("u", 37), strings.Repeat("ä", 36), strings.Repeat("ä", 37),
	)
	for _, odd := range odds {
		add("out", []byte(odd), "key", "value", 0)
		add("out", []byte(odd), "key", "value", 1)
		add(odd, []byte("{}"), "key", "value", 2)
		add("out", []byte("{}"), odd, "value", 4)
		add("out", []byte("{}"), "correlation_id", odd, 7)
	}
}

// TestPayloadSizes tries payloads from none to 16 MiB, around the sizes at which columns end.
func TestPayloadSizes(t *testing.T, b Bench) {
	b.withEachDriver(t, func(t *testing.T, driver BenchDriver) {
		for _, size := range []int{0, 1, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1 << 20, 16 << 20} {
			t.Run(fmt.Sprint(size), func(t *testing.T) {
				metadata := message.Metadata{"size": fmt.Sprint(size)}
				b.checkProduced(t, driver, false, produced{"out", noise(size), metadata})
				if b.JSONOutbox != nil {
					b.checkProduced(t, driver, true, produced{"out", `"` + strings.Repeat("x", max(0, size-2)) + `"`, metadata})
				}
			})
		}
	})
}

// TestManyMessages has a handler publish messages of a middle size that are more together than one statement can be on some servers.
func TestManyMessages(t *testing.T, b Bench) {
	b.withEachDriver(t, func(t *testing.T, driver BenchDriver) {
		x := b.trial(driver, false)
		x.clear(t)
		var msgs []*message.Message
		var want []produced
		for n := range 200 {
			out := produced{fmt.Sprint(n), noise(100<<10 + n), message.Metadata{}}
			want, msgs = append(want, out), append(msgs, out.message())
		}
		if _, err := x.process(t, inbox.Row{Consumer: "billing", ID: "m1"}, message.NewMessage("m1", nil), msgs...); err != nil {
			t.Fatal(err)
		}
		x.wantProduced(t, want...)
	})
}

// TestHugeTexts has identities, UUIDs and metadata of 16 MiB. What is refused is refused in few words.
func TestHugeTexts(t *testing.T, b Bench) {
	huge := strings.Repeat("x", 16<<20)
	b.withEachDriver(t, func(t *testing.T, driver BenchDriver) {
		b.checkIdentities(t, driver,
			inbox.Row{Consumer: "billing", ID: huge}, inbox.Row{Consumer: "billing", Producer: huge, ID: "m1"}, inbox.Row{Consumer: huge, ID: "m1"})
		for _, out := range []produced{
			{huge, "", message.Metadata{}},
			{huge, "", message.Metadata{"key": "value"}},
			{"out", "", message.Metadata{"key": huge}},
			{"out", "", message.Metadata{"key": huge + "\xff"}},
		} {
			b.checkProduced(t, driver, false, out)
		}
	})
}

// verdict is what must become of an outgoing message.
type verdict int

const (
	fits       verdict = iota // it is stored
	refusable                 // the engine may refuse it
	refusal                   // the inbox refuses it before the insert
	unstorable                // that too, and the message is poison
	tooLarge                  // the engine refuses it because of its size
)

// judge knows the limits of watermill-sql's own schemas and the bench's.
func (x *trial) judge(t *testing.T, out produced) verdict {
	t.Helper()
	limited := x.limited(t)
	text, size := !limited || utf8.ValidString(out.uuid), len(out.payload)
	for key, value := range out.metadata {
		text = text && utf8.ValidString(key) && utf8.ValidString(value)
		size += len(key) + len(value)
	}
	switch {
	case !text:
		return unstorable
	case limited && utf8.RuneCountInString(out.uuid) > 36, x.json && !(json.Valid([]byte(out.payload)) && utf8.ValidString(out.payload)):
		return refusal
	case x.bench.MaxSize > 0 && size >= x.bench.MaxSize:
		return tooLarge
	case x.bench.MayRefuse != nil && x.bench.MayRefuse(out.uuid, out.payload, x.json):
		return refusable
	}
	return fits
}

// checkProduced delivers a message whose handler publishes the same. If that fails, it publishes one that fits.
func (b Bench) checkProduced(t *testing.T, driver BenchDriver, json bool, out produced) {
	t.Helper()
	x := b.trial(driver, json)
	x.clear(t)
	row := inbox.Row{Consumer: "billing", ID: "m1"}
	_, err := x.process(t, row, out.message(), out.message())
	switch want := x.judge(t, out); {
	case err != nil && want != fits:
		x.wantRefused(t, err, want, out)
		x.wantStored(t)
		x.wantProduced(t)
		out = produced{"out", "{}", message.Metadata{"then": "a message that fits"}}
		if x.judge(t, out) != fits {
			x = b.trial(driver, false) // not sure to fit into the outbox of JSON
		}
		_, err = x.process(t, row, out.message(), out.message())
	case want != fits && want != refusable:
		t.Fatalf("%.300q was stored", out)
	}
	if err != nil {
		t.Fatalf("%.300q: %v", out, err)
	}
	x.wantProduced(t, out)
	x.wantRecognised(t, row, out)
}

// wantRefused stops the test unless the error says why the outgoing message was not stored.
func (x *trial) wantRefused(t *testing.T, err error, want verdict, out produced) {
	t.Helper()
	wantText(t, err, `consumer "billing": message "m1": outbox`)
	wantShort(t, err)
	byInbox := want == refusal || want == unstorable
	if byInbox != strings.Contains(err.Error(), "outgoing message ") {
		t.Fatalf("want an error by the inbox itself: %t; got: %v", byInbox, err)
	}
	if want == tooLarge {
		wantText(t, err, x.bench.TooLarge)
	}
	if want != unstorable {
		if inbox.IsPoison(err) || errors.Is(err, inbox.ErrUnstorable) {
			t.Fatalf("an outgoing message that is text made the incoming one poison: %v", err)
		}
		return
	}
	wantPermanent(t, err, inbox.ErrUnstorable)
	if !x.limited(t) || utf8.ValidString(out.uuid) {
		wantText(t, err, "metadata")
	}
}

// wantRecognised delivers the message of the row again, and with other content, and wants nothing to change.
func (x *trial) wantRecognised(t *testing.T, row inbox.Row, out produced) {
	t.Helper()
	if outcome, err := x.process(t, row, out.message()); outcome != inbox.Duplicate || err != nil {
		t.Fatalf("%.300q again: %v, %v; want a duplicate", out, outcome, err)
	}
	other := out
	other.payload += "\x00"
	_, err := x.process(t, row, other.message())
	wantMismatch(t, err, inbox.Identity{ID: row.ID})
	x.wantStored(t, row)
	if n := x.outbox(t); n != 1 {
		t.Fatalf("%d messages in the outbox, want 1", n)
	}
}
