package postgres_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/postgres"
)

// On a real server a name is refused, or becomes exactly one table with one index.
func TestTableNames(t *testing.T) {
	b := newBench(t)
	before := b.objects(t)
	for _, d := range b.drivers {
		for _, name := range append(tableNames(), b.namespace+".Qualified", b.namespace+"."+strings.Repeat("q", 63)) {
			schema := postgres.Schema{MessagesTable: name}
			_, err := inbox.New(d.db, inbox.Config{Schema: schema, Consumer: "c", AutoInitializeSchema: true}, nil)
			database, table, qualified := strings.Cut(name, ".")
			switch {
			case name != "" && !safeName.MatchString(name):
				require.ErrorContains(t, err, "inbox: invalid config: Schema: table name")
			case qualified && database != b.namespace && database != "public":
				require.ErrorContains(t, err, "inbox: initialize schema")
			default:
				require.NoError(t, err, name)
			}
			after := b.objects(t)
			if err == nil && name != "" && database != "public" {
				if !qualified {
					table = name
				}
				require.True(t, after["r "+table], "no table %q in %v", table, after)
				require.Len(t, after, len(before)+2)
			}
			if err == nil && name != "" {
				b.exec(t, "DROP TABLE "+schema.Table())
			}
			require.Equal(t, before, b.objects(t))
		}
	}
}

// objects returns all tables and indexes of the bench, with their kind.
func (b *bench) objects(t *testing.T) map[string]bool {
	t.Helper()
	result, err := b.admin.Query("SELECT relkind::text || ' ' || relname FROM pg_class WHERE relnamespace = $1::regnamespace", b.namespace)
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
