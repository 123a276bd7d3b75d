package mysql_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/mysql"
)

// safeName is what a name may be, possibly with a database and a dot before it.
var safeName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_$]{0,63}\.)?[A-Za-z_][A-Za-z0-9_$]{0,63}\z`)

func tableNames() []string { return append(inboxtest.TableNames(64), "#mysql50#x", "Inbox_Messages") }

// Any name of a table is either refused by name, or no statement has it but quoted.
func FuzzTableName(f *testing.F) {
	for _, name := range tableNames() {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		schema := mysql.Schema{MessagesTable: name}
		if err := schema.Validate(); err != nil {
			require.ErrorContains(t, err, "table name "+strconv.Quote(name))
			require.False(t, safeName.MatchString(name), "%q is refused: %v", name, err)
			return
		}
		if name == "" {
			name = "inbox_messages"
		}
		require.Regexp(t, safeName, name)

		// Information_schema is asked for the name as a text.
		quoted, database, table := "`"+strings.ReplaceAll(name, ".", "`.`")+"`", "DATABASE()", name
		if before, after, qualified := strings.Cut(name, "."); qualified {
			database, table = "'"+before+"'", after
		}
		replacer := strings.NewReplacer("`zzq`", quoted, "table_schema = DATABASE() AND table_name = 'zzq'", "table_schema = "+database+" AND table_name = '"+table+"'")
		for _, mariaDB := range []bool{false, true} {
			want := inboxtest.Statements(mysql.Schema{MessagesTable: "zzq", MariaDB: mariaDB})
			for n := range want {
				want[n] = replacer.Replace(want[n])
			}
			require.Equal(t, want, inboxtest.Statements(mysql.Schema{MessagesTable: schema.MessagesTable, MariaDB: mariaDB}))
		}
	})
}

// On a real server a name is refused, or becomes exactly one table.
func TestTableNames(t *testing.T) {
	onBothServers(t, func(t *testing.T, b inboxtest.Bench) {
		for _, driver := range b.Drivers {
			t.Run(driver.Name, func(t *testing.T) { tryTableNames(t, b, driver) })
		}
	})
}

func tryTableNames(t *testing.T, b inboxtest.Bench, driver inboxtest.BenchDriver) {
	var namespace string
	require.NoError(t, b.Admin.QueryRow("SELECT DATABASE()").Scan(&namespace))
	tables := func() map[string]bool {
		return inboxtest.Objects(t, b.Admin, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
	}
	before := tables()
	for _, name := range append(tableNames(), namespace+".Qualified", namespace+"."+strings.Repeat("q", 64)) {
		schema := mysql.Schema{MessagesTable: name, MariaDB: b.Schema.(mysql.Schema).MariaDB}
		_, err := inbox.New(driver.DB, inbox.Config{Schema: schema, Consumer: "c", AutoInitializeSchema: true}, nil)
		database, table, qualified := strings.Cut(name, ".")
		switch {
		case name != "" && !safeName.MatchString(name):
			require.ErrorContains(t, err, "inbox: invalid config: Schema: table name")
		case qualified && database != namespace:
			require.ErrorContains(t, err, "inbox: initialize schema")
		default:
			require.NoError(t, err, name)
		}
		if err == nil && name != "" {
			if !qualified {
				table = name
			}
			after := tables()
			require.True(t, after[table], "no table %q in %v", table, after)
			require.Len(t, after, len(before)+1)
			exec(t, b.Admin, "DROP TABLE "+schema.Table())
		}
		require.Equal(t, before, tables())
	}
}
