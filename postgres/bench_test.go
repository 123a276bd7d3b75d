package postgres_test

import (
	"strings"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/postgres"
)

func FuzzIdentity(f *testing.F) { inboxtest.FuzzIdentity(f, newBench(f)) }
func FuzzPayload(f *testing.F)  { inboxtest.FuzzPayload(f, newBench(f)) }

func TestNeighboursAreNeverMistaken(t *testing.T) { inboxtest.TestNeighbours(t, newBench(t)) }
func TestRandomIdentities(t *testing.T)           { inboxtest.TestRandomIdentities(t, newBench(t)) }
func TestSizesOfPayloads(t *testing.T)            { inboxtest.TestPayloadSizes(t, newBench(t)) }
func TestManyMessagesOfAMiddleSize(t *testing.T)  { inboxtest.TestManyMessages(t, newBench(t)) }
func TestHugeIdentitiesAndMetadata(t *testing.T)  { inboxtest.TestHugeTexts(t, newBench(t)) }

// newBench has drivers whose position the fuzz targets' corpora know.
func newBench(t testing.TB) inboxtest.Bench {
	t.Helper()
	_, server, namespace := newNamespace(t)
	dsn := withParameters(t, server, "search_path", namespace, "synchronous_commit", "off")
	escapes := withParameters(t, dsn, "standard_conforming_strings", "off", "binary_parameters", "yes")
	b := inboxtest.Bench{
		Schema:     postgres.Schema{},
		Outbox:     outboxOf("BYTEA"),
		JSONOutbox: outboxOf("JSON"),
		MayRefuse:  func(uuid, _ string, json bool) bool { return json || strings.Contains(uuid, "\x00") },
		Admin:      connect(t, "pgx", dsn),
		Drivers: []inboxtest.BenchDriver{
			{Name: "pgx", DB: wsql.BeginnerFromPgx(newPool(t, dsn))},
			{Name: "database-sql-pgx", DB: wsql.BeginnerFromStdSQL(connect(t, "pgx", dsn))},
			{Name: "database-sql-pq", DB: wsql.BeginnerFromStdSQL(connect(t, "postgres", dsn))},
			{Name: "database-sql-pq-escapes", DB: wsql.BeginnerFromStdSQL(connect(t, "postgres", escapes))},
		},
	}
	b.CreateTables(t)
	return b
}

// outboxOf is an outbox in a table that is named after the type of its payload.
func outboxOf(payload string) inboxtest.OutboxSchema {
	return wsql.DefaultPostgreSQLSchema{
		GenerateMessagesTableName: func(string) string { return "outbox_" + payload },
		GeneratePayloadType:       func(string) string { return payload },
	}
}
