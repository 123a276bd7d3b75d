package inboxtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

var receiveCases = []testCase{
	{name: "D1_StoreThenProcess", run: testStoreThenProcess, variants: true},
	{name: "D1_ProcessedIsNotStoredAgain", run: testProcessedIsNotStoredAgain},
	{name: "D1_OtherContentIsAMismatch", run: testReceiveMismatch},
	{name: "T36_MessagesComeBackByteForByte", run: testByteForByte, variants: true},
	{name: "T37_OneBadMessageHarmsNoNeighbour", run: testBadNeighbour},
	{name: "T38_PendingIsNotStoredAgain", run: testPendingIsNotStoredAgain, variants: true},
}

func testStoreThenProcess(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{}, nil)
	var msgs []*message.Message
	for i := range 20 {
		msgs = append(msgs, newMessage(fmt.Sprintf("m%d", i)))
	}
	n.store(t, msgs...)
	if got := f.pending(t); got != len(msgs) {
		t.Fatalf("%d rows pending, want %d", got, len(msgs))
	}
	n.start(t)
	f.waitForPending(t, 0)
	f.want(t, rows{biz: len(msgs), inbox: len(msgs)})
	for _, msg := range msgs {
		if got := n.callsOf(msg.UUID); got != 1 {
			t.Fatalf("message %s was handled %d times", msg.UUID, got)
		}
	}
}

func testProcessedIsNotStoredAgain(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{}, nil)
	n.start(t)
	n.store(t, newMessage("m1"))
	f.waitForPending(t, 0)
	wantOutcomes(t, n, nil, []deferred.ReceiveOutcome{deferred.AlreadyProcessed, deferred.Stored}, newMessage("m1"), newMessage("m2"))
	f.waitForPending(t, 0)
	f.want(t, rows{biz: 2, inbox: 2})
}

// wantOutcomes stops the test unless Receive tells these outcomes, and an error that is want.
func wantOutcomes(t *testing.T, n *node, want error, outcomes []deferred.ReceiveOutcome, msgs ...*message.Message) {
	t.Helper()
	got, err := n.receiver.Receive(context.Background(), orders, msgs...)
	if want == nil && err != nil {
		t.Fatal(err)
	}
	if want != nil {
		wantIs(t, err, want)
	}
	if fmt.Sprint(got) != fmt.Sprint(outcomes) {
		t.Fatalf("outcomes %v, want %v", got, outcomes)
	}
}

func testReceiveMismatch(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{}, nil)
	n.store(t, newMessage("m1"))
	other := newMessageWith("m1", `{"other":true}`)
	outcomes, err := n.receiver.Receive(context.Background(), orders, other, newMessage("m2"), newMessageWith("m2", "x"))
	if fmt.Sprint(outcomes) != "[mismatch stored mismatch]" || !inbox.IsPoison(err) {
		t.Fatalf("pending: outcomes %v, error %v", outcomes, err)
	}
	wantText(t, err, `"billing"`, `"m1"`)
	n.start(t)
	f.waitForPending(t, 0)
	outcomes, err = n.receiver.Receive(context.Background(), orders, other)
	if fmt.Sprint(outcomes) != "[mismatch]" || !inbox.IsPoison(err) {
		t.Fatalf("processed: outcomes %v, error %v", outcomes, err)
	}
	f.want(t, rows{biz: 2, inbox: 2})
}

func testByteForByte(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{receiver: deferred.ReceiverConfig{Identity: inbox.FromMetadata("id")}}, nil)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	want := map[string]*message.Message{}
	for id, metadata := range map[string]message.Metadata{
		"nothing": {},
		"text":    {"a": "ä€", "": "empty key", "nul": "a\x00b", "quote": `'"\`},
		"bytes":   {"\xff": string(all), "b": "c"},
		"big":     {"big": strings.Repeat("x", 1<<20)},
	} {
		msg := message.NewMessage("uuid of "+id, all)
		if id == "nothing" {
			msg.Payload = nil
		}
		msg.Metadata = metadata
		msg.Metadata.Set("id", id+string(all[:200]))
		want[msg.UUID] = msg
		n.store(t, msg)
	}
	messages := n.subscribe(t)
	for range want {
		got := receive(t, messages, "a message")
		msg := want[got.UUID]
		if msg == nil || string(got.Payload) != string(msg.Payload) || fmt.Sprintf("%q", got.Metadata) != fmt.Sprintf("%q", msg.Metadata) {
			t.Fatalf("message %q came back as %q with metadata of %d bytes", got.UUID, got.Payload, len(fmt.Sprint(got.Metadata)))
		}
		got.Ack()
	}
	f.waitForPending(t, 0)
}

func testBadNeighbour(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{receiver: deferred.ReceiverConfig{MaxMessageSize: 1000}}, nil)
	msgs := []*message.Message{
		newMessage("m1"), newMessage(""), newMessageWith("big", strings.Repeat("x", 2000)), newMessage(strings.Repeat("i", 513)), newMessage("m2"),
	}
	outcomes, err := n.receiver.Receive(context.Background(), orders, msgs...)
	if fmt.Sprint(outcomes) != "[stored refused refused refused stored]" {
		t.Fatalf("outcomes %v, error %v", outcomes, err)
	}
	wantIs(t, err, inbox.ErrNoIdentity)
	wantIs(t, err, deferred.ErrTooLarge)
	wantIs(t, err, inbox.ErrIdentityTooLong)
	wantText(t, err, "3 of 5 messages", `"billing"`, `"big"`)
	if got := f.pending(t); got != 2 {
		t.Fatalf("%d rows pending, want 2", got)
	}
}

func testPendingIsNotStoredAgain(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{}, nil)
	n.store(t, newMessage("m1"))
	wantOutcomes(t, n, nil, []deferred.ReceiveOutcome{deferred.AlreadyPending, deferred.Stored, deferred.AlreadyPending},
		newMessage("m1"), newMessage("m2"), newMessage("m2"))
	if got := f.pending(t); got != 2 {
		t.Fatalf("%d rows pending, want 2", got)
	}
	n.start(t)
	f.waitForPending(t, 0)
	f.want(t, rows{biz: 2, inbox: 2})
}
