package postgres_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/postgres"
)

// safeName is what a name may be, possibly with a schema and a dot before it.
var safeName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_$]{0,62}\.)?[A-Za-z_][A-Za-z0-9_$]{0,62}\z`)

// Any name of a table is either refused by name, or no statement has it but quoted.
func FuzzTableName(f *testing.F) {
	for _, name := range tableNames() {
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
		mine, others := statements(schema), statements(postgres.Schema{MessagesTable: "zzq"})
		for n := range others {
			require.Equal(t, strings.ReplaceAll(others[n], `"zzq"`, quoted), mine[n])
		}
	})
}

func tableNames() []string {
	longest := strings.Repeat("t", 63)
	return []string{
		"", "custom", "Inbox$Rows_1", "select", "_", "a.b", "public.Order", longest, longest + "t", longest + "." + longest, longest + "t." + longest, "a." + longest + "tt",
		`x"; DROP TABLE inbox_messages; --`, `x" (a int); --`, `"x"`, "'x'", "x'y", `x\`, "x y", " x", "x ", "x\n", "x\x00", "x\x00y", "x;y", "x--", "x/*",
		".", ".x", "x.", "..", "a.b.c", `a".b`, "1x", "$x", "é", "x\xff", "x{{table}}", "{{table}}", "zzq",
	}
}

func statements(schema postgres.Schema) []string {
	row := inbox.Row{Consumer: "c", Producer: "p", ID: "i", Fingerprint: "f:s"}
	probe, insert := schema.NoWaitQueries(row)
	texts := []string{schema.DDL(), schema.Table()}
	for _, query := range append(schema.SchemaInitializingQueries(), schema.InsertQuery(row), schema.SelectQuery(row), schema.DescribeQuery(), probe, insert) {
		texts = append(texts, query.Query)
		for _, arg := range query.Args {
			if text, ok := arg.(string); ok {
				texts = append(texts, text)
			}
		}
	}
	return texts
}
