package inboxtest

import (
	"database/sql"
	"strings"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
)

// TableNames are names of tables, good and bad ones, for an engine whose names have so many characters at most.
func TableNames(longest int) []string {
	long := strings.Repeat("t", longest)
	return []string{
		"", "custom", "Inbox$Rows_1", "select", "_", "a.b", "public.Order", long, long + "t", long + "." + long, long + "t." + long, "a." + long + "tt",
		`x"; DROP TABLE inbox_messages; --`, "x`; DROP TABLE inbox_messages; --", `x" (a int); --`, "x` (a int); --", `x" (a); --`, `"x"`, "`x`", "[x]",
		"'x'", "x'y", `x\`, "x y", " x", "x ", "x\n", "x\x00", "x\x00y", "x;y", "x--", "x/*",
		".", ".x", "x.", "..", "a.b.c", `a".b`, "1x", "$x", "é", "x\xff", "x{{table}}", "{{table}}", "zzq",
	}
}

// Statements are all texts in which a dialect has the name of its table: statements, and those of their arguments that are strings.
func Statements(schema inbox.Schema) []string {
	row := inbox.Row{Consumer: "c", Producer: "p", ID: "i", Fingerprint: "f:s", Token: 7}
	queries := append(schema.SchemaInitializingQueries(), schema.InsertQuery(row), schema.SelectQuery(row), schema.DescribeQuery())
	if schema, ok := schema.(inbox.TransactionChecker); ok {
		queries = append(queries, schema.TransactionCheckQuery(row))
	}
	if schema, ok := schema.(inbox.NoWaitInserter); ok {
		probe, insert := schema.NoWaitQueries(row)
		queries = append(queries, probe, insert)
	}
	texts := []string{schema.DDL(), schema.Table()}
	for _, query := range queries {
		texts = append(texts, textsOf(query)...)
	}
	return texts
}

func textsOf(query wsql.Query) []string {
	texts := []string{query.Query}
	for _, arg := range query.Args {
		if text, ok := arg.(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

// Objects returns what a query with one column finds, such as the names of all tables.
func Objects(t testing.TB, db *sql.DB, query string, args ...any) map[string]bool {
	t.Helper()
	result, err := db.Query(query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = result.Close() }()
	found := map[string]bool{}
	for result.Next() {
		var name string
		if err := result.Scan(&name); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		found[name] = true
	}
	if err := result.Err(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return found
}
