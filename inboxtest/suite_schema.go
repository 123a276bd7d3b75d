package inboxtest

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/watermill-inbox/inbox"
)

var schemaCases = []testCase{
	{name: "Schema_TenInstancesAtOnce", run: tenInstancesAtOnce, variants: true, empty: true},
	{name: "Schema_DDLByHand", run: ddlByHand, empty: true},
	{name: "Schema_MissingTable", run: missingTable, empty: true},
	{name: "Schema_Mistakes", run: mistakes, empty: true},
	{name: "Schema_MistakesInDeliveries", run: mistakesInDeliveries, empty: true},
}

// tenInstancesAtOnce is the first deploy of a service.
func tenInstancesAtOnce(t *testing.T, f *fixture) {
	const instances = 10
	pools := make([]Pool, instances)
	for n := range pools {
		pools[n] = f.pool(t, 1)
	}
	boxes, errs, done := make([]*inbox.Inbox, instances), make([]error, instances), make(chan struct{})
	for n := range instances {
		go func() {
			boxes[n], errs[n] = f.tryNewInbox(pools[n], inbox.Config{AutoInitializeSchema: true})
			done <- struct{}{}
		}()
	}
	for range instances {
		receive(t, done, "New")
	}
	for n, err := range errs {
		if err != nil {
			t.Fatalf("instance %d: %v", n, err)
		}
	}
	f.wantVerified(t, boxes[0])
	for _, box := range boxes {
		wantAck(t, deliver(box.Middleware(f.writes), newMessage("m1")))
	}
	f.wantStored(t, inbox.Row{Consumer: "billing", ID: "m1"})
	if got := f.biz(t); got != 1 {
		t.Fatalf("%d effects of one message", got)
	}
}

func (f *fixture) wantVerified(t *testing.T, box *inbox.Inbox) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := box.Verify(ctx); err != nil {
		t.Fatal(err)
	}
}

// ddlByHand is for users with migrations of their own, which may run again.
func ddlByHand(t *testing.T, f *fixture) {
	box := f.newInbox(t, f.pool(t, 2), inbox.Config{})
	for range 2 {
		f.exec(t, f.database.Schema("").DDL())
		f.wantVerified(t, box)
	}
	wantAck(t, deliver(box.Middleware(f.writes), newMessage("m1")))
	f.exec(t, f.database.Schema("").DDL())
	if err := box.InitializeSchema(context.Background()); err != nil {
		t.Fatal(err)
	}
	f.wantStored(t, inbox.Row{Consumer: "billing", ID: "m1"})
}

// missingTable: the operator forgot it. No message is at fault, and no handler may run.
func missingTable(t *testing.T, f *fixture) {
	c := f.consumer(t, inbox.Config{}, f.writes)
	wantWords(t, c.inbox.Verify(context.Background()), "does not exist", "InitializeSchema", "DDL")
	wantTableError(t, c.inbox.Verify(context.Background()), f.database.Schema("").Table(), true)

	d := c.deliver(newMessage("m1"))
	wantNack(t, d)
	f.wantMisfortune(t, d.err)
	c.wantCalls(t, 0)

	if err := c.inbox.InitializeSchema(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantAck(t, c.deliver(newMessage("m1")))
	c.wantCalls(t, 1)
	f.wantStored(t, inbox.Row{Consumer: "billing", ID: "m1"})
}

// wantMisfortune stops the test unless err names the message "m1" of "billing" without blaming it.
func (f *fixture) wantMisfortune(t *testing.T, err error) {
	t.Helper()
	wantNames(t, err, inbox.Error{Consumer: "billing", Identity: inbox.Identity{ID: "m1"}, Stage: inbox.StageInsert})
	if inbox.IsPoison(err) {
		t.Fatalf("a fault of the database made the message poison: %v", err)
	}
}

var (
	tableOfDDL      = regexp.MustCompile(`CREATE TABLE IF NOT EXISTS (\S+) \(`)
	primaryKeyOfDDL = regexp.MustCompile(`,\s*PRIMARY KEY \([^)]*\)`)
)

// badTable is a way to make the table of identities wrong: either other DDL or statements after it.
type badTable struct {
	Mistake
	change func(ddl string) string
}

func withPrimaryKey(key string) func(ddl string) string {
	return func(ddl string) string {
		ddl = strings.ReplaceAll(ddl, " WITHOUT ROWID", "") // which needs a primary key
		return primaryKeyOfDDL.ReplaceAllString(ddl, key)
	}
}

// badTables are those of the dialect and those that any SQL can make.
func (f *fixture) badTables() []badTable {
	bad := []badTable{
		{Mistake{Name: "no fingerprint", Statements: []string{"ALTER TABLE inbox_messages DROP COLUMN fingerprint"}, Want: []string{"fingerprint is missing"}}, nil},
		{Mistake{Name: "no time", Statements: []string{"ALTER TABLE inbox_messages DROP COLUMN processed_at"}, Want: []string{"processed_at is missing"}}, nil},
		{Mistake{Name: "no key", Want: []string{"primary key"}}, withPrimaryKey("")},
		{Mistake{Name: "key without producer", Want: []string{"primary key", "producer"}}, withPrimaryKey(", PRIMARY KEY (consumer, message_id)")},
		{Mistake{Name: "key without consumer", Want: []string{"primary key", "consumer"}}, withPrimaryKey(", PRIMARY KEY (producer, message_id)")},
		{Mistake{Name: "key of the time too", Want: []string{"processed_at"}}, withPrimaryKey(", PRIMARY KEY (consumer, producer, message_id, processed_at)")},
	}
	for _, mistake := range f.database.Mistakes {
		bad = append(bad, badTable{mistake, nil})
	}
	return bad
}

func (b badTable) create(t *testing.T, f *fixture) {
	t.Helper()
	ddl := f.database.Schema("").DDL()
	if b.change != nil {
		ddl = b.change(ddl)
	}
	for _, statement := range append([]string{"DROP TABLE IF EXISTS inbox_messages", ddl}, b.Statements...) {
		f.exec(t, statement)
	}
}

func mistakes(t *testing.T, f *fixture) {
	pool := f.pool(t, 1)
	box := f.newInbox(t, pool, inbox.Config{})
	for _, bad := range f.badTables() {
		t.Run(bad.Name, func(t *testing.T) {
			bad.create(t, f)
			wantWords(t, box.Verify(context.Background()), bad.Want...)
			wantWords(t, box.InitializeSchema(context.Background()), bad.Want...)
			if _, err := f.tryNewInbox(pool, inbox.Config{AutoInitializeSchema: true}); err == nil {
				t.Fatal("New accepts the table")
			}
		})
	}
	badTable{}.create(t, f)
	f.wantVerified(t, box)
}

// mistakesInDeliveries is for those who do not verify: what a delivery meets then is not its message's fault, and is never taken
// for a duplicate.
func mistakesInDeliveries(t *testing.T, f *fixture) {
	c := f.consumer(t, inbox.Config{Identity: fromMetadata, ConflictRetries: -1}, f.writes)
	badTable{Mistake{Statements: []string{"ALTER TABLE inbox_messages DROP COLUMN fingerprint"}}, nil}.create(t, f)
	d := c.deliver(newMessage("m1"))
	wantNack(t, d)
	f.wantMisfortune(t, d.err)
	c.wantCalls(t, 0)

	badTable{Mistake{}, withPrimaryKey(", PRIMARY KEY (consumer, message_id)")}.create(t, f)
	wantAck(t, c.deliver(newMessageOf("shop", "m1")))
	for range 2 {
		d := c.deliver(newMessageOf("depot", "m1"))
		wantNack(t, d)
		if inbox.IsPoison(d.err) {
			t.Fatalf("a table without its key made the message poison: %v", d.err)
		}
	}
	c.wantCalls(t, 1)
	f.wantStored(t, inbox.Row{Consumer: "billing", Producer: "shop", ID: "m1"})
}
