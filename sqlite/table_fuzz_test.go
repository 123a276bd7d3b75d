package sqlite_test

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/sqlite"
)

// safeName is what a name may be, possibly with a database and a dot before it.
var safeName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_$]{0,62}\.)?[A-Za-z_][A-Za-z0-9_$]{0,62}\z`)

// Any name of a table is either refused by name or becomes exactly one table, and no statement has it but quoted.
func FuzzTableName(f *testing.F) {
	for _, name := range tableNames() {
		f.Add(name)
	}
	b := newBench(f)
	before := b.objects(f)
	f.Fuzz(func(t *testing.T, name string) {
		schema := sqlite.Schema{MessagesTable: name}
		if err := schema.Validate(); err != nil {
			require.ErrorContains(t, err, "table name "+strconv.Quote(name))
			special := strings.HasPrefix(strings.ToLower(name[strings.Index(name, ".")+1:]), "sqlite_") || strings.EqualFold(name[:max(0, strings.Index(name, "."))], "temp")
			require.True(t, special || !safeName.MatchString(name), "%q is refused: %v", name, err)
			return
		}
		require.True(t, name == "" || safeName.MatchString(name), "%q is taken", name)
		wantSameStatements(t, name)

		// On a real database: one table of that name and nothing else, or an error because its database is not attached.
		err := b.create(schema)
		database, table, qualified := strings.Cut(name, ".")
		switch {
		case qualified && !strings.EqualFold(database, "main"):
			require.ErrorContains(t, err, "unknown database")
			require.Equal(t, before, b.objects(t))
			return
		case !qualified:
			table = name
		}
		require.NoError(t, err)
		if name == "" || strings.EqualFold(table, "inbox_messages") || strings.EqualFold(table, "watermill_out") {
			require.Equal(t, before, b.objects(t))
			return
		}
		after := b.objects(t)
		require.Equal(t, "table", after[table])
		delete(after, table)
		require.Equal(t, before, after)
		b.exec(t, "DROP TABLE "+schema.Table())
		require.Equal(t, before, b.objects(t))
	})
}

func tableNames() []string {
	longest := strings.Repeat("t", 63)
	return []string{
		"", "inbox_messages", "INBOX_MESSAGES", "custom", "Inbox$Rows_1", "select", "_", "a.b", "main.Order", "MAIN.x", "temp.x", "TEMP.x", "main.sqlite_x", "SQLite_x",
		"sqlite_master", "sqliteX", longest, longest + "t", "main." + longest, "main." + longest + "t", `x"; DROP TABLE inbox_messages; --`, `x" (a); --`, `"x"`, "[x]", "`x`",
		"'x'", "x'y", `x\`, "x y", " x", "x ", "x\n", "x\x00", "x\x00y", "x;y", "x--", "x/*", ".", ".x", "x.", "..", "a.b.c", `a".b`, "1x", "$x", "é", "x\xff", "x{{table}}",
		"{{table}}", "zzq",
	}
}

// wantSameStatements has every statement for the name be that for another name, but for the quoted name.
func wantSameStatements(t *testing.T, name string) {
	t.Helper()
	const other = "zzq.zzq"
	if !strings.Contains(name, ".") {
		name = "main." + sqlite.Schema{MessagesTable: name}.Table()[1:]
		name = strings.TrimSuffix(name, `"`)
	}
	mine, others := statements(sqlite.Schema{MessagesTable: name}), statements(sqlite.Schema{MessagesTable: other})
	database, table, _ := strings.Cut(name, ".")
	for n := range others {
		want := strings.ReplaceAll(others[n], `"zzq"."zzq"`, `"`+database+`"."`+table+`"`)
		want = strings.ReplaceAll(want, "'zzq', 'zzq'", "'"+table+"', '"+database+"'")
		require.Equal(t, want, mine[n])
	}
}

func statements(schema sqlite.Schema) []string {
	row := inbox.Row{Consumer: "c", Producer: "p", ID: "i", Fingerprint: "f:s", Token: 7}
	texts := []string{schema.DDL()}
	queries := append(schema.SchemaInitializingQueries(), schema.InsertQuery(row), schema.SelectQuery(row), schema.DescribeQuery(), schema.TransactionCheckQuery(row))
	for _, query := range queries {
		texts = append(texts, query.Query)
	}
	return texts
}

// create makes the table as the Inbox does, and has the Inbox verify it.
func (b *bench) create(schema sqlite.Schema) error {
	box, err := inbox.New(wsql.BeginnerFromStdSQL(b.db), inbox.Config{Schema: schema, Consumer: "c", AutoInitializeSchema: true}, nil)
	if err == nil && box == nil {
		return errors.New("no inbox")
	}
	return err
}

// objects returns everything that the database has, with its kind.
func (b *bench) objects(tb testing.TB) map[string]string {
	tb.Helper()
	result, err := b.db.Query("SELECT name, type FROM sqlite_master UNION ALL SELECT 'temp.' || name, type FROM sqlite_temp_master")
	require.NoError(tb, err)
	defer func() { _ = result.Close() }()
	found := map[string]string{}
	for result.Next() {
		var name, kind string
		require.NoError(tb, result.Scan(&name, &kind))
		found[name] = kind
	}
	require.NoError(tb, result.Err())
	return found
}
