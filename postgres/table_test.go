package postgres_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/postgres"
)

// safeName is what a name may be, possibly with a schema and a dot before it.
var safeName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_$]{0,62}\.)?[A-Za-z_][A-Za-z0-9_$]{0,62}\z`)

// Any name of a table is either refused by name, or no statement has it but quoted.
func FuzzTableName(f *testing.F) {
	for _, name := range inboxtest.TableNames(63) {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		schema := postgres.Schema{MessagesTable: name}
		if err := schema.Validate(); err != nil {
			require.ErrorContains(t, err, "table name "+strconv.Quote(name))
			require.False(t, safeName.MatchString(name), "%q is refused: %v", name, err)
			return
		}
		if name == "" {
			name = "inbox_messages"
		}
		require.Regexp(t, safeName, name)

		quoted := `"` + strings.ReplaceAll(name, ".", `"."`) + `"`
		want := inboxtest.Statements(postgres.Schema{MessagesTable: "zzq"})
		for n := range want {
			want[n] = strings.ReplaceAll(want[n], `"zzq"`, quoted)
		}
		require.Equal(t, want, inboxtest.Statements(schema))
	})
}

// On a real server a name is refused, or becomes exactly one table with one index.
func TestTableNames(t *testing.T) {
	b := newBench(t)
	for _, driver := range b.Drivers {
		t.Run(driver.Name, func(t *testing.T) { tryTableNames(t, b, driver) })
	}
}

func tryTableNames(t *testing.T, b inboxtest.Bench, driver inboxtest.BenchDriver) {
	var namespace string
	require.NoError(t, b.Admin.QueryRow("SELECT current_schema()").Scan(&namespace))
	objects := func() map[string]bool {
		return inboxtest.Objects(t, b.Admin, "SELECT relkind::text || ' ' || relname FROM pg_class WHERE relnamespace = $1::regnamespace", namespace)
	}
	before := objects()
	for _, name := range append(inboxtest.TableNames(63), namespace+".Qualified", namespace+"."+strings.Repeat("q", 63)) {
		schema := postgres.Schema{MessagesTable: name}
		_, err := inbox.New(driver.DB, inbox.Config{Schema: schema, Consumer: "c", AutoInitializeSchema: true}, nil)
		database, table, qualified := strings.Cut(name, ".")
		switch {
		case name != "" && !safeName.MatchString(name):
			require.ErrorContains(t, err, "inbox: invalid config: Schema: table name")
		case qualified && database != namespace && database != "public":
			require.ErrorContains(t, err, "inbox: initialize schema")
		default:
			require.NoError(t, err, name)
		}
		if err == nil && name != "" && database != "public" {
			if !qualified {
				table = name
			}
			after := objects()
			require.True(t, after["r "+table], "no table %q in %v", table, after)
			require.Len(t, after, len(before)+2)
		}
		if err == nil && name != "" {
			exec(t, b.Admin, "DROP TABLE "+schema.Table())
		}
		require.Equal(t, before, objects())
	}
}
