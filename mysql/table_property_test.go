package mysql_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/mysql"
)

// On a real server a name is refused, or becomes exactly one table.
func TestTableNames(t *testing.T) {
	onBothServers(t, func(t *testing.T, b *bench, d driver) {
		before := b.objects(t)
		for _, name := range append(tableNames(), "Inbox_Messages", b.namespace+".Qualified", b.namespace+"."+strings.Repeat("q", 64)) {
			schema := mysql.Schema{MessagesTable: name, MariaDB: b.mariaDB}
			_, err := inbox.New(d.db, inbox.Config{Schema: schema, Consumer: "c", AutoInitializeSchema: true}, nil)
			database, table, qualified := strings.Cut(name, ".")
			switch {
			case name != "" && !safeName.MatchString(name):
				require.ErrorContains(t, err, "inbox: invalid config: Schema: table name")
			case qualified && database != b.namespace:
				require.ErrorContains(t, err, "inbox: initialize schema")
			default:
				require.NoError(t, err, name)
			}
			after := b.objects(t)
			if err == nil && name != "" {
				if !qualified {
					table = name
				}
				require.True(t, after[table], "no table %q in %v", table, after)
				require.Len(t, after, len(before)+1)
				b.exec(t, "DROP TABLE "+schema.Table())
			}
			require.Equal(t, before, b.objects(t))
		}
	})
}

// objects returns all tables of the bench.
func (b *bench) objects(t *testing.T) map[string]bool {
	t.Helper()
	result, err := b.admin.Query("SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()")
	require.NoError(t, err)
	defer func() { _ = result.Close() }()
	found := map[string]bool{}
	for result.Next() {
		var name string
		require.NoError(t, result.Scan(&name))
		found[name] = true
	}
	require.NoError(t, result.Err())
	return found
}
