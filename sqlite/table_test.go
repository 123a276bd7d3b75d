package sqlite_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/sqlite"
)

// safeName is what a name may be, possibly with a database and a dot before it.
var safeName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_$]{0,62}\.)?[A-Za-z_][A-Za-z0-9_$]{0,62}\z`)

// Any name of a table is either refused by name or becomes exactly one table, and no statement has it but quoted.
func FuzzTableName(f *testing.F) {
	longest := "main." + strings.Repeat("t", 63)
	for _, name := range append(inboxtest.TableNames(63),
		"inbox_messages", "INBOX_MESSAGES", "main.Order", "MAIN.x", "temp.x", "TEMP.x", "main.sqlite_x", "SQLite_x", "sqlite_master", "sqliteX", longest, longest+"t") {
		f.Add(name)
	}
	b := newBench(f)
	f.Fuzz(func(t *testing.T, name string) {
		schema := sqlite.Schema{MessagesTable: name}
		if err := schema.Validate(); err != nil {
			require.ErrorContains(t, err, "table name "+strconv.Quote(name))
			special := strings.HasPrefix(strings.ToLower(name[strings.Index(name, ".")+1:]), "sqlite_") || strings.EqualFold(name[:max(0, strings.Index(name, "."))], "temp")
			require.True(t, special || !safeName.MatchString(name), "%q is refused: %v", name, err)
			return
		}
		require.True(t, name == "" || safeName.MatchString(name), "%q is taken", name)
		wantSameStatements(t, schema)
		wantOneTable(t, b, schema)
	})
}

// wantSameStatements has every statement for the name be that for another name, but for the quoted name.
func wantSameStatements(t *testing.T, schema sqlite.Schema) {
	t.Helper()
	if !strings.Contains(schema.MessagesTable, ".") {
		schema.MessagesTable = "main." + strings.Trim(schema.Table(), `"`)
	}
	database, table, _ := strings.Cut(schema.MessagesTable, ".")
	replacer := strings.NewReplacer(`"zzq"."zzq"`, `"`+database+`"."`+table+`"`, "'zzq', 'zzq'", "'"+table+"', '"+database+"'")
	want := inboxtest.Statements(sqlite.Schema{MessagesTable: "zzq.zzq"})
	for n := range want {
		want[n] = replacer.Replace(want[n])
	}
	require.Equal(t, want, inboxtest.Statements(schema))
}

// wantOneTable has the Inbox create its table on a real database: one table of that name and nothing else, or an error because its database is
// not attached.
func wantOneTable(t *testing.T, b inboxtest.Bench, schema sqlite.Schema) {
	t.Helper()
	objects := func() map[string]bool {
		return inboxtest.Objects(t, b.Admin, "SELECT type || ' ' || name FROM sqlite_master UNION ALL SELECT 'temp ' || type || ' ' || name FROM sqlite_temp_master")
	}
	want := objects()
	_, err := inbox.New(b.Drivers[0].DB, inbox.Config{Schema: schema, Consumer: "c", AutoInitializeSchema: true}, nil)
	database, table, qualified := strings.Cut(schema.MessagesTable, ".")
	if !qualified {
		database, table = "main", database
	}
	if !strings.EqualFold(database, "main") {
		require.ErrorContains(t, err, "unknown database")
		require.Equal(t, want, objects())
		return
	}
	require.NoError(t, err)
	if table == "" || strings.EqualFold(table, "inbox_messages") || strings.EqualFold(table, "watermill_outgoing") {
		require.Equal(t, want, objects())
		return
	}
	want["table "+table] = true
	require.Equal(t, want, objects())
	_, err = b.Admin.Exec("DROP TABLE " + schema.Table())
	require.NoError(t, err)
	delete(want, "table "+table)
	require.Equal(t, want, objects())
}
