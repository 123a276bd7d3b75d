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
	{name: "D4_CountUpTo", run: testCountUpTo},
	{name: "D4_CountUpToManyTopics", run: testCountManyTopics},
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
	// It is not received later that makes a message late, but its time.
	f.exec(t, "UPDATE inbox_pending SET due_at = due_at - 1800000000 WHERE consumer = "+f.bytes("nobody"))
	f.exec(t, "UPDATE inbox_pending SET due_at = due_at + 1800000000 WHERE topic = "+f.bytes("returns"))
	wantCounts(t, store,
		deferred.Count{Consumer: "billing", Topic: orders, Pending: 1, Suspect: 1, Claimed: 1, Waiting: 1, Dead: 2},
		deferred.Count{Consumer: "billing", Topic: "returns", Pending: 1},
		deferred.Count{Consumer: "nobody", Topic: orders, Pending: 2, Oldest: time.Hour, Overdue: 30 * time.Minute},
	)
	f.exec(t, "UPDATE inbox_pending SET state = 4 WHERE consumer = "+f.bytes("nobody"))
	counts, err := store.Count(context.Background())
	if err != nil || len(counts) != 3 || counts[2].Oldest != 0 || counts[2].Overdue != 0 || counts[2].Dead != 2 {
		t.Fatalf("only dead messages: %+v, error %v", counts, err)
	}
}

// testCountUpTo: numbers stop at the limit, and what was received last may be due first.
func testCountUpTo(t *testing.T, f *fixture) {
	receiver, store := f.receiverOf(t, deferred.ReceiverConfig{Consumer: "billing"}), f.operator(t, deferred.Pending)
	storeEach(t, receiver, orders, "0", "1", "2", "3", "4", "5")
	f.exec(t, "UPDATE inbox_pending SET state = 4 WHERE message_id = "+f.bytes("5"))
	f.exec(t, "UPDATE inbox_pending SET received_at = received_at - 7200000000 WHERE message_id = "+f.bytes("0"))
	f.exec(t, "UPDATE inbox_pending SET due_at = due_at - 3600000000 WHERE message_id = "+f.bytes("4"))
	for limit, want := range map[int]deferred.Count{
		1:   {Pending: 1, Dead: 1, Overdue: time.Hour},
		2:   {Pending: 2, Dead: 1, Overdue: time.Hour, Oldest: 2 * time.Hour},
		5:   {Pending: 5, Dead: 1, Overdue: time.Hour, Oldest: 2 * time.Hour},
		100: {Pending: 5, Dead: 1, Overdue: time.Hour, Oldest: 2 * time.Hour},
	} {
		want.Consumer, want.Topic = "billing", orders
		got, complete, err := store.CountUpTo(context.Background(), limit)
		if err != nil || !complete {
			t.Fatalf("limit %d: complete %t, error %v", limit, complete, err)
		}
		compareCounts(t, got, []deferred.Count{want})
	}
	if _, _, err := store.CountUpTo(context.Background(), 0); err == nil {
		t.Fatal("limit 0 is no limit")
	}
}

// testCountManyTopics: a service that makes a topic of each customer must not make counting expensive.
func testCountManyTopics(t *testing.T, f *fixture) {
	receiver := f.receiverOf(t, deferred.ReceiverConfig{Consumer: "billing"})
	store := f.operator(t, deferred.Pending).WithTimeout(standstill) // five hundred statements beside the other tests
	msgs := make([]*message.Message, deferred.MaxCountGroups+1)
	for i := range msgs {
		msgs[i] = newMessage(fmt.Sprintf("%04d", i))
	}
	if err := receiver.Publish(orders, msgs...); err != nil {
		t.Fatal(err)
	}
	f.exec(t, "UPDATE inbox_pending SET topic = message_id")
	for _, complete := range []bool{false, true} {
		counts, got, err := store.CountUpTo(context.Background(), 10)
		if err != nil || got != complete || len(counts) != deferred.MaxCountGroups || counts[deferred.MaxCountGroups-1].Pending != 1 {
			t.Fatalf("%d counts, complete %t, want %t, error %v", len(counts), got, complete, err)
		}
		f.exec(t, "DELETE FROM inbox_pending WHERE message_id = "+f.bytes("0123"))
	}
}

// bytes is a literal of the database.
func (f *fixture) bytes(s string) string {
	return string(f.database.Schema("").(deferred.Dialect).AppendBytes(nil, s))
}

// wantCounts stops the test unless the store counts that, in both ways. Times are to be reached and not to be passed by a minute.
func wantCounts(t *testing.T, store *deferred.Store, want ...deferred.Count) {
	t.Helper()
	got, err := store.Count(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	compareCounts(t, got, want)
	got, complete, err := store.CountUpTo(context.Background(), 1000)
	if err != nil || !complete {
		t.Fatalf("complete %t, error %v", complete, err)
	}
	compareCounts(t, got, want)
}

func compareCounts(t *testing.T, got, want []deferred.Count) {
	t.Helper()
	about := func(got, want *time.Duration) {
		if *got >= *want && *got < *want+time.Minute {
			*got = *want
		}
	}
	for n := range min(len(got), len(want)) {
		about(&got[n].Oldest, &want[n].Oldest)
		about(&got[n].Overdue, &want[n].Overdue)
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
