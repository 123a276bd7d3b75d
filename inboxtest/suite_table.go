package inboxtest

import (
	"context"
	"strings"
	"testing"

	"github.com/watermill-inbox/inbox"
)

var tableCases = []testCase{
	{name: "Table_Names", run: tableNames, empty: true},
	{name: "Table_InjectionIsRefused", run: injectionIsRefused},
	{name: "I3_UnavailableDatabase", run: unavailableDatabase},
}

// tableNames uses each table beside the others, so a statement that forgets the name finds the rows of another.
func tableNames(t *testing.T, f *fixture) {
	pool := f.pool(t, 2)
	longest := "t" + strings.Repeat("x", 62)
	for n, name := range []string{"", "custom", "Inbox$Rows_1", "select", longest, f.instance.Namespace + ".qualified", f.instance.Namespace + ".Order"} {
		schema := f.database.Schema(name)
		c := f.consumerOn(t, pool, inbox.Config{Schema: schema, AutoInitializeSchema: true}, f.writes)
		for range 3 {
			wantAck(t, c.deliver(newMessage("m1")))
		}
		d := c.deliver(newMessageWith("m1", "other"))
		wantMismatch(t, d.err, inbox.Identity{ID: "m1"})
		c.wantCalls(t, 1)
		if got := f.biz(t); got != n+1 {
			t.Fatalf("table %q: %d effects, want %d", name, got, n+1)
		}
		quoted := tableOfDDL.FindStringSubmatch(schema.DDL())[1]
		if got := f.number(t, "SELECT COUNT(*) FROM "+quoted); got != 1 {
			t.Fatalf("table %s has %d rows, want 1", quoted, got)
		}
		f.wantVerified(t, c.inbox)

		f.exec(t, "DROP TABLE "+quoted)
		if err := c.inbox.Verify(context.Background()); err == nil {
			t.Fatalf("Verify finds the dropped table %q", name)
		}
		f.exec(t, schema.DDL())
	}

	elsewhere := f.newInbox(t, pool, inbox.Config{Schema: f.database.Schema("no_such_schema.inbox_messages")})
	wantWords(t, elsewhere.Verify(context.Background()), "inbox: verify schema")
	d := deliver(elsewhere.Middleware(f.writes), newMessage("m1"))
	wantNack(t, d)
	f.wantMisfortune(t, d.err)
}

func injectionIsRefused(t *testing.T, f *fixture) {
	pool := f.pool(t, 1)
	for _, name := range []string{
		`x"; DROP TABLE biz; --`, "x`; DROP TABLE biz; --", "x'; DROP TABLE biz; --", "x; DROP TABLE biz", "x (a INT); --", `x" (a INT); --`,
		`"x"`, "`x`", "'x'", "x y", " x", "x\n", "x\x00", "x)", "x-y", "x/*", "x\\", "x?", "x:1",
		".", ".x", "x.", "..", "a.b.c", `a".b`, "a.`b", "1x", "$x", "é", "x\xff", strings.Repeat("x", 65), "a." + strings.Repeat("x", 65),
	} {
		_, err := f.tryNewInbox(pool, inbox.Config{Schema: f.database.Schema(name), AutoInitializeSchema: true})
		if err == nil {
			t.Fatalf("New accepts the table name %q", name)
		}
		wantWords(t, err, "inbox: invalid config: Schema: table name")
	}
	f.want(t, rows{})
}

// unavailableDatabase: the pool is closed, as by a shutdown in the wrong order. Nothing is known of the message then.
func unavailableDatabase(t *testing.T, f *fixture) {
	pool := f.pool(t, 1)
	c := f.consumerOn(t, pool, inbox.Config{}, f.writes)
	wantAck(t, c.deliver(newMessage("m1")))
	pool.Close()

	for _, id := range []string{"m1", "m2"} {
		d := c.deliver(newMessage(id))
		wantNack(t, d)
		wantNames(t, d.err, inbox.Error{Consumer: "billing", Identity: inbox.Identity{ID: id}, Stage: inbox.StageBegin})
		if inbox.IsPoison(d.err) {
			t.Fatalf("a closed pool made the message poison: %v", d.err)
		}
	}
	c.wantCalls(t, 1)
	f.want(t, rows{biz: 1, inbox: 1})
}
