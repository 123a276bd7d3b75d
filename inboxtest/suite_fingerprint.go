package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

var fingerprintCases = []testCase{
	{name: "T19_OtherPayload", run: otherPayload, variants: true},
	{name: "I7_OnMismatch", run: onMismatch},
	{name: "I7_OtherFunction", run: otherFunction},
	{name: "I7_LongestFingerprint", run: longestFingerprint},
	{name: "I7_BadFingerprint", run: badFingerprint},
}

func otherPayload(t *testing.T, f *fixture) {
	c := f.consumer(t, inbox.Config{Identity: inbox.WithProducer("shop", inbox.MessageUUID)}, f.writes)
	wantAck(t, c.deliver(newMessageWith("m1", "first")))
	before := f.stored(t)

	for _, payload := range []string{"second", "", "First", "first "} {
		d := c.deliver(newMessageWith("m1", payload))
		wantNack(t, d)
		wantMismatch(t, d.err, inbox.Identity{Producer: "shop", ID: "m1"})
		c.wantCalls(t, 1)
		f.want(t, rows{biz: 1, inbox: 1})
		f.wantSameRows(t, before)
	}

	wantAck(t, c.deliver(newMessageWith("m1", "first")))
	c.wantCalls(t, 1)
	f.want(t, rows{biz: 1, inbox: 1})
}

// wantMismatch stops the test unless err is a mismatch of a message of "billing".
func wantMismatch(t *testing.T, err error, identity inbox.Identity) {
	t.Helper()
	var mismatch *inbox.MismatchError
	if !errors.As(err, &mismatch) || mismatch.Consumer != "billing" || mismatch.Identity != identity {
		t.Fatalf("want a *MismatchError of billing and %q; got %v", identity, err)
	}
	if mismatch.Stored.Name != mismatch.Received.Name || string(mismatch.Stored.Sum) == string(mismatch.Received.Sum) {
		t.Fatalf("want two sums of one function; got %s and %s", mismatch.Stored, mismatch.Received)
	}
	wantPermanent(t, err, mismatch)
	wantWords(t, err, `"billing"`, `"`+identity.ID+`"`, mismatch.Stored.String(), mismatch.Received.String())
}

// onMismatch lets the policy use the pool, which has one connection: the delivery must have given it back.
func onMismatch(t *testing.T, f *fixture) {
	pool := f.pool(t, 1)
	audit := f.newInbox(t, pool, inbox.Config{Consumer: "audit"})
	for _, policy := range []error{nil, errors.New("policy")} {
		id := fmt.Sprint(policy)
		seen := &reports{}
		c := f.consumerOn(t, pool, inbox.Config{Observer: seen, OnMismatch: func(msg *message.Message, mismatch *inbox.MismatchError) error {
			wantMismatch(t, mismatch, inbox.Identity{ID: id})
			if _, ok := inbox.TxFromContext(msg.Context()); ok {
				t.Error("OnMismatch finds a transaction")
			}
			_, err := audit.Process(newMessage(id), func(ctx context.Context) error { return f.write(ctx, "audit of "+id, 1) })
			return errors.Join(err, policy)
		}}, f.writes)

		wantAck(t, c.deliver(newMessageWith(id, "first")))
		d := c.deliver(newMessageWith(id, "second"))
		if d.nacked != (policy != nil) || !errors.Is(d.err, policy) {
			t.Fatalf("OnMismatch said %v; got %v", policy, d)
		}
		if report := seen.last(); !report.Mismatch || (report.Outcome == inbox.Duplicate) != (policy == nil) {
			t.Fatalf("the Observer was told %+v", report)
		}
		c.wantCalls(t, 1)
		if effects, audits := f.bizOf(t, id), f.bizOf(t, "audit of "+id); effects != 1 || audits != 1 {
			t.Fatalf("%d effects and %d audits, want one each", effects, audits)
		}
		wantAck(t, c.deliver(newMessageWith(id, "first")))
		c.wantCalls(t, 1)
	}
	f.want(t, rows{biz: 4, inbox: 4})
}

// otherFunction is a deploy that changes the function: no redelivery becomes a mismatch, and each function goes on to find its own.
func otherFunction(t *testing.T, f *fixture) {
	pool := f.pool(t, 2)
	functions := []inbox.FingerprintFunc{
		inbox.PayloadSHA256, inbox.CanonicalJSONSHA256, inbox.NoFingerprint,
		inbox.PayloadAndMetadataSHA256("type"), inbox.PayloadAndMetadataSHA256("type", "tenant"),
	}
	total := 0
	for before, old := range functions {
		for after, other := range functions {
			if after == before {
				continue
			}
			id := fmt.Sprintf("%d to %d", before, after)
			first := f.consumerOn(t, pool, inbox.Config{Fingerprint: old}, f.writes)
			second := f.consumerOn(t, pool, inbox.Config{Fingerprint: other}, f.writes)
			wantAck(t, first.deliver(newMessageWith(id, `{"n":1}`)))
			wantAck(t, second.deliver(newMessageWith(id, `{"n":1}`)))
			wantAck(t, second.deliver(newMessageWith(id, `{"n":2}`)))
			second.wantCalls(t, 0)

			d := first.deliver(newMessageWith(id, `{"n":2}`))
			if detects := before != 2; d.nacked != detects {
				t.Fatalf("%s: the old function detects other content: %t; got %v", id, detects, d)
			}
			first.wantCalls(t, 1)
			total++
		}
	}
	f.want(t, rows{biz: total, inbox: total})
}

// sumOf is a fingerprint that is what the payload says.
func sumOf(name string) inbox.FingerprintFunc {
	return func(msg *message.Message) (inbox.Fingerprint, error) {
		return inbox.Fingerprint{Name: name, Sum: msg.Payload}, nil
	}
}

// longestFingerprint: the sum is opaque bytes, compared exactly and to its end.
func longestFingerprint(t *testing.T, f *fixture) {
	name, sum := strings.Repeat("n", 63), noise(63)
	c := f.consumer(t, inbox.Config{Fingerprint: sumOf(name)}, f.writesStep)
	wantAck(t, c.deliver(newMessageWith("m1", sum+" ")))
	for _, other := range []string{sum, sum + "\x00", sum + "a", sum[1:] + " "} {
		d := c.deliver(newMessageWith("m1", other))
		wantNack(t, d)
		wantMismatch(t, d.err, inbox.Identity{ID: "m1"})
	}
	for _, odd := range []string{":", "::", "\x00", "\\", "'", " "} {
		wantAck(t, c.deliver(newMessageWith("of "+odd, odd)))
		wantAck(t, c.deliver(newMessageWith("of "+odd, odd)))
	}
	c.wantCalls(t, 7)
	f.want(t, rows{biz: 7, inbox: 7})
	for _, row := range f.stored(t) {
		sum := strings.TrimPrefix(row.ID, "of ")
		if want := name + ":" + sum; row.ID != "m1" && row.Fingerprint != want {
			t.Fatalf("stored fingerprint %q, want %q", row.Fingerprint, want)
		}
	}
}

func badFingerprint(t *testing.T, f *fixture) {
	pool := f.pool(t, 1)
	broken := errors.New("cannot read it")
	for _, test := range []struct {
		function inbox.FingerprintFunc
		word     string
	}{
		{func(*message.Message) (inbox.Fingerprint, error) { return inbox.Fingerprint{}, broken }, broken.Error()},
		{sumOf(strings.Repeat("n", 64)), "63"},
		{sumOf("a:b"), "a:b"},
		{sumOf(""), "name"},
		{func(*message.Message) (inbox.Fingerprint, error) { return inbox.Fingerprint{Name: "a"}, nil }, "0 bytes"},
		{func(*message.Message) (inbox.Fingerprint, error) {
			return inbox.Fingerprint{Name: "a", Sum: make([]byte, 65)}, nil
		}, "65"},
	} {
		err := f.refuses(t, pool, inbox.Config{Fingerprint: test.function}, func() *message.Message { return newMessage("m1") }, inbox.ErrBadFingerprint)
		wantNames(t, err, inbox.Error{Consumer: "billing", Identity: inbox.Identity{ID: "m1"}, Stage: inbox.StageIdentity})
		wantWords(t, err, test.word)
	}
}
