package inboxtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/deferred"
)

var storeCases = []testCase{
	{name: "D4_Count", run: testCount},
	{name: "D4_List", run: testList},
	{name: "D4_LoadIsByteForByte", run: testLoad, variants: true},
	{name: "D4_MaxMessageSize", run: testMaxMessageSize},
	{name: "D4_Schema", run: testStoreSchema},
}

// receiverOf makes a Receiver of a consumer, which nobody need run.
func (f *fixture) receiverOf(t *testing.T, config deferred.ReceiverConfig) *deferred.Receiver {
	t.Helper()
	config.Schema, config.AutoInitializeSchema = f.database.Schema(""), true
	receiver, err := deferred.NewReceiver(f.pool(t, 2).DB, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	return receiver
}

// storeEach stores messages of a topic one after the other, so that their numbers are in this order.
func storeEach(t *testing.T, receiver *deferred.Receiver, topic string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := receiver.Publish(topic, newMessage(id)); err != nil {
			t.Fatal(err)
		}
	}
}

func testCount(t *testing.T, f *fixture) {
	billing, nobody := f.receiverOf(t, deferred.ReceiverConfig{Consumer: "billing"}), f.receiverOf(t, deferred.ReceiverConfig{Consumer: "nobody"})
	store := f.operator(t, deferred.Pending)
	wantCounts(t, store)
	storeEach(t, billing, orders, "0", "1", "2", "3", "4", "5")
	storeEach(t, billing, "returns", "0")
	storeEach(t, nobody, orders, "0", "1")
	for number, state := range []deferred.State{0, deferred.StateSuspect, deferred.StateClaimed, deferred.StateWaiting, deferred.StateDead, deferred.StateDead} {
		f.exec(t, fmt.Sprintf("UPDATE inbox_pending SET state = %d WHERE message_id = %s AND topic = %s AND consumer = %s",
			state, f.bytes(fmt.Sprint(number)), f.bytes(orders), f.bytes("billing")))
	}
	// The oldest of all is dead and does not count; those of nobody are an hour old.
	f.exec(t, "UPDATE inbox_pending SET received_at = received_at - 7200000000 WHERE state = 4")
	f.exec(t, "UPDATE inbox_pending SET received_at = received_at - 3600000000 WHERE consumer = "+f.bytes("nobody"))
	wantCounts(t, store,
		deferred.Count{Consumer: "billing", Topic: orders, Pending: 1, Suspect: 1, Claimed: 1, Waiting: 1, Dead: 2},
		deferred.Count{Consumer: "billing", Topic: "returns", Pending: 1},
		deferred.Count{Consumer: "nobody", Topic: orders, Pending: 2, Oldest: time.Hour},
	)
	f.exec(t, "UPDATE inbox_pending SET state = 4 WHERE consumer = "+f.bytes("nobody"))
	counts, err := store.Count(context.Background())
	if err != nil || len(counts) != 3 || counts[2].Oldest != 0 || counts[2].Dead != 2 {
		t.Fatalf("only dead messages: %+v, error %v", counts, err)
	}
}

// bytes is a literal of the database.
func (f *fixture) bytes(s string) string {
	return string(f.database.Schema("").(deferred.Dialect).AppendBytes(nil, s))
}

// wantCounts stops the test unless the store counts that. Oldest is to be reached and not to be passed by a minute.
func wantCounts(t *testing.T, store *deferred.Store, want ...deferred.Count) {
	t.Helper()
	got, err := store.Count(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for n := range got {
		if n < len(want) && got[n].Oldest >= want[n].Oldest && got[n].Oldest < want[n].Oldest+time.Minute {
			got[n].Oldest = want[n].Oldest
		}
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Fatalf("counts %+v, want %+v", got, want)
	}
}

func testList(t *testing.T, f *fixture) {
	billing, mail := f.receiverOf(t, deferred.ReceiverConfig{Consumer: "billing"}), f.receiverOf(t, deferred.ReceiverConfig{Consumer: "mail"})
	store := f.operator(t, deferred.Pending)
	storeEach(t, billing, orders, "m0", "m1", "m2", "m3")
	storeEach(t, billing, "returns", "m4")
	storeEach(t, mail, orders, "m5")
	f.exec(t, "UPDATE inbox_pending SET state = 4 WHERE message_id = "+f.bytes("m1"))
	f.exec(t, "UPDATE inbox_pending SET state = 2 WHERE message_id = "+f.bytes("m3"))
	all := list(t, store)
	for _, c := range []struct {
		filter deferred.Filter
		want   string
	}{
		{deferred.Filter{}, "m0 m1 m2 m3 m4 m5"},
		{deferred.Filter{Consumer: "billing"}, "m0 m1 m2 m3 m4"},
		{deferred.Filter{Topic: orders}, "m0 m1 m2 m3 m5"},
		{deferred.Filter{Consumer: "mail", Topic: "returns"}, ""},
		{deferred.Filter{Consumer: "bill"}, ""},
		{deferred.Filter{States: []deferred.State{deferred.StateDead}}, "m1"},
		{deferred.Filter{Consumer: "billing", Topic: orders, States: []deferred.State{deferred.StateDead, deferred.StateClaimed}}, "m1 m3"},
		{deferred.Filter{Limit: 2}, "m0 m1"},
		{deferred.Filter{After: all[1].Number, Limit: 3}, "m2 m3 m4"},
		{deferred.Filter{After: all[5].Number}, ""},
		{deferred.Filter{Consumer: "billing", After: all[3].Number}, "m4"},
	} {
		found, err := store.List(context.Background(), c.filter)
		var ids []string
		for _, m := range found {
			ids = append(ids, m.UUID)
		}
		if got := strings.Join(ids, " "); err != nil || got != c.want {
			t.Fatalf("%+v: got %q, want %q, error %v", c.filter, got, c.want, err)
		}
	}
	m := all[5]
	if m.Consumer != "mail" || m.Topic != orders || m.Identity.ID != "m5" || m.Size != len(`{"of":"m5"}`) || !m.Due.Equal(m.Received) {
		t.Fatalf("described as %+v", m)
	}
	if off := time.Since(m.Received); off < -time.Minute || off > time.Minute {
		t.Fatalf("received %s", m.Received)
	}
}

func testLoad(t *testing.T, f *fixture) {
	n, store := f.newNode(t, nodeOptions{}, nil), f.operator(t, deferred.Pending)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	want := message.NewMessage("id\x00\xff", all)
	want.Metadata = message.Metadata{"\xff": string(all), "text": "ä\x00'\\", "": ""}
	n.store(t, want)
	number := list(t, store)[0].Number
	got, err := store.Load(context.Background(), number)
	if err != nil {
		t.Fatal(err)
	}
	if got.UUID != want.UUID || string(got.Payload) != string(want.Payload) || fmt.Sprintf("%q", got.Metadata) != fmt.Sprintf("%q", want.Metadata) {
		t.Fatalf("loaded %q, payload %q, metadata %q", got.UUID, got.Payload, got.Metadata)
	}
	if f.inState(t, deferred.StatePending) != 1 { // and it is still to be claimed
		t.Fatal("Load changed the row")
	}
	_, err = store.Load(context.Background(), number+1)
	wantIs(t, err, deferred.ErrNotFound)
	wantText(t, err, fmt.Sprint(number+1))
}

// testMaxMessageSize: at the limit it is stored, and one byte more, in the payload or in the metadata, is refused.
func testMaxMessageSize(t *testing.T, f *fixture) {
	const metadata = `{"k":"v"}`
	receiver := f.receiverOf(t, deferred.ReceiverConfig{Consumer: "billing", MaxMessageSize: 100 + len(metadata)})
	sized := func(id string, payload int, value string) *message.Message {
		msg := newMessageWith(id, strings.Repeat("x", payload))
		msg.Metadata.Set("k", value)
		return msg
	}
	outcomes, err := receiver.Receive(context.Background(), orders, sized("fits", 100, "v"), sized("payload", 101, "v"), sized("metadata", 100, "vv"))
	if fmt.Sprint(outcomes) != "[stored refused refused]" {
		t.Fatalf("outcomes %v, error %v", outcomes, err)
	}
	wantIs(t, err, deferred.ErrTooLarge)
	wantText(t, err, `"payload"`, `"metadata"`, "110 bytes", "at most 109")
	if got := f.pending(t); got != 1 {
		t.Fatalf("%d rows pending, want 1", got)
	}
}
