package inboxtest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// Bench is one database on which texts, bytes and sizes of every kind are tried as identities and as messages, with one driver after the
// other. TestSchema tries what each of a few means; a Bench is for what nobody has thought of:
//
//	func FuzzIdentity(f *testing.F) { inboxtest.FuzzIdentity(f, newBench(f)) }
//
// Schema, Outbox, Admin and at least one of Drivers are required, and CreateTables must have been called.
type Bench struct {
	// Schema is the dialect with its default table. If it can, it inserts one identity in two without waiting.
	Schema inbox.Schema

	// Outbox is a schema of watermill-sql whose column takes any bytes as payload.
	Outbox OutboxSchema

	// JSONOutbox is one whose column takes JSON only, in another table. Nil: there is none.
	JSONOutbox OutboxSchema

	// JSONKeepsValue: that column keeps what the JSON means and not its text.
	JSONKeepsValue bool

	// MayRefuse tells whether the engine may refuse a message that the inbox lets pass into the outbox of JSON or the other. Nil: never.
	MayRefuse func(uuid, payload string, json bool) bool

	// MaxSize is the number of bytes from which on the engine refuses a message, with an error that has TooLarge in it. Zero: there is none.
	MaxSize  int
	TooLarge string

	// Admin is a pool for reading what is stored. The one who opened it closes it.
	Admin *sql.DB

	// Drivers are the pools that are tried. Fuzzing chooses among them by their position.
	Drivers []BenchDriver
}

// BenchDriver is a pool of one driver and one DSN.
type BenchDriver struct {
	Name string
	DB   wsql.Beginner
}

// CreateTables creates the tables of Schema and of the outboxes.
func (b Bench) CreateTables(t testing.TB) {
	t.Helper()
	x := b.trial(BenchDriver{}, false)
	x.exec(t, b.Schema.DDL())
	x.createOutbox(t)
	if b.JSONOutbox != nil {
		b.trial(BenchDriver{}, true).createOutbox(t)
	}
}

// trial is a bench with one of its drivers and one of its outboxes.
type trial struct {
	*fixture
	bench Bench
	db    wsql.Beginner
	json  bool
}

func (b Bench) trial(driver BenchDriver, json bool) *trial {
	outbox := b.Outbox
	if json {
		outbox = b.JSONOutbox
	}
	return &trial{&fixture{database: Database{Outbox: outbox}, instance: Instance{Admin: b.Admin}}, b, driver.DB, json}
}

// withEachDriver runs a test with every driver. Its outbox is that for any bytes.
func (b Bench) withEachDriver(t *testing.T, test func(t *testing.T, driver BenchDriver)) {
	t.Helper()
	for _, driver := range b.Drivers {
		t.Run(driver.Name, func(t *testing.T) { test(t, driver) })
	}
}

// clear empties the tables, in one transaction because fuzzing does that all the time.
func (x *trial) clear(t *testing.T) {
	t.Helper()
	tables := []string{inbox.DefaultMessagesTable, x.bench.Outbox.MessagesTable(outgoing)}
	if x.bench.JSONOutbox != nil {
		tables = append(tables, x.bench.JSONOutbox.MessagesTable(outgoing))
	}
	tx, err := x.bench.Admin.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if _, err := tx.Exec("DELETE FROM " + table); err != nil {
			t.Fatal(errors.Join(err, tx.Rollback()))
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// process delivers a message as the message of a row to a handler that publishes the outgoing messages. It stops the test if the outcome is not
// what the handler saw.
func (x *trial) process(t *testing.T, row inbox.Row, incoming *message.Message, out ...*message.Message) (inbox.Outcome, error) {
	t.Helper()
	_, noWait := x.bench.Schema.(inbox.NoWaitInserter)
	box, err := inbox.New(x.db, inbox.Config{
		Schema: x.bench.Schema, Consumer: row.Consumer, NoWait: noWait && len(row.Producer)%2 == 1,
		Outbox: inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: x.database.Outbox}, nil),
		Identity: func(*message.Message) (inbox.Identity, error) {
			return inbox.Identity{Producer: row.Producer, ID: row.ID}, nil
		},
	}, nil)
	if err != nil {
		return 0, err
	}
	ran := false
	outcome, err := box.Process(incoming, func(ctx context.Context) error {
		ran = true
		for _, msg := range out {
			msg.SetContext(ctx)
		}
		_ = box.Publisher().Publish(outgoing, out...) // a careless handler: the delivery must fail nevertheless
		return nil
	})
	if err == nil && ran != (outcome == inbox.Processed) {
		t.Fatalf("outcome %v, the handler ran: %t", outcome, ran)
	}
	return outcome, err
}

// produced is an outgoing message.
type produced struct {
	uuid, payload string
	metadata      message.Metadata
}

func (out produced) message() *message.Message {
	msg := message.NewMessage(out.uuid, []byte(out.payload))
	msg.Metadata = maps.Clone(out.metadata)
	return msg
}

// wantProduced stops the test unless the outbox has exactly these messages in this order, byte for byte.
func (x *trial) wantProduced(t *testing.T, want ...produced) {
	t.Helper()
	stored := x.outboxRows(t)
	if len(stored) != len(want) {
		t.Fatalf("%d messages in the outbox, want %d", len(stored), len(want))
	}
	for n, row := range stored {
		got := produced{uuid: row.uuid, payload: row.payload}
		if err := json.Unmarshal([]byte(row.metadata), &got.metadata); err != nil {
			t.Fatalf("metadata %.300q: %v", row.metadata, err)
		}
		if x.json && x.bench.JSONKeepsValue {
			got.payload = want[n].payload
		}
		if !reflect.DeepEqual(got, want[n]) {
			t.Fatalf("message %d of the outbox is %.300q, want %.300q", n, got, want[n])
		}
	}
}
