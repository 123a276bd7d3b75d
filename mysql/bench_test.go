package mysql_test

import (
	"slices"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/mysql"
)

func FuzzIdentityMySQL(f *testing.F)   { inboxtest.FuzzIdentity(f, newBench(f, servers["mysql"])) }
func FuzzIdentityMariaDB(f *testing.F) { inboxtest.FuzzIdentity(f, newBench(f, servers["mariadb"])) }
func FuzzPayloadMySQL(f *testing.F)    { inboxtest.FuzzPayload(f, newBench(f, servers["mysql"])) }
func FuzzPayloadMariaDB(f *testing.F)  { inboxtest.FuzzPayload(f, newBench(f, servers["mariadb"])) }

func TestNeighboursAreNeverMistaken(t *testing.T) { onBothServers(t, inboxtest.TestNeighbours) }
func TestRandomIdentities(t *testing.T)           { onBothServers(t, inboxtest.TestRandomIdentities) }
func TestSizesOfPayloads(t *testing.T)            { onBothServers(t, inboxtest.TestPayloadSizes) }
func TestHugeIdentitiesAndMetadata(t *testing.T)  { onBothServers(t, inboxtest.TestHugeTexts) }

// Parameters are sent in two ways, which these two DSNs choose.
func TestManyMessagesOfAMiddleSize(t *testing.T) {
	onBothServers(t, func(t *testing.T, b inboxtest.Bench) {
		b.Drivers = slices.DeleteFunc(b.Drivers, func(driver inboxtest.BenchDriver) bool {
			return driver.Name != "default" && driver.Name != "interpolateParams"
		})
		inboxtest.TestManyMessages(t, b)
	})
}

func onBothServers(t *testing.T, test func(t *testing.T, b inboxtest.Bench)) {
	for name, server := range servers {
		t.Run(name, func(t *testing.T) { test(t, newBench(t, server)) })
	}
}

// benchParameters are those of the DSN under which bytes could be read differently. The fuzz targets' corpora know them by their position.
var benchParameters = []struct {
	name   string
	values map[string]string
}{
	{"ansi", map[string]string{"sql_mode": "'ANSI,STRICT_ALL_TABLES'"}},
	{"default", nil},
	{"interpolateParams", map[string]string{"interpolateParams": "true"}},
	{"no-backslash", map[string]string{"sql_mode": "'STRICT_TRANS_TABLES,NO_BACKSLASH_ESCAPES'"}},
	{"no-backslash-interpolate", map[string]string{"sql_mode": "'NO_BACKSLASH_ESCAPES'", "interpolateParams": "true"}},
	{"not-strict", map[string]string{"sql_mode": "''"}},
}

func newBench(t testing.TB, server server) inboxtest.Bench {
	t.Helper()
	_, config := newDatabase(t, server)
	b := inboxtest.Bench{
		Schema:         mysql.Schema{MariaDB: server.mariaDB},
		Outbox:         outboxOf("LONGBLOB"),
		JSONOutbox:     outboxOf("JSON"),
		JSONKeepsValue: !server.mariaDB, // MariaDB keeps the text
		MayRefuse:      func(_, _ string, json bool) bool { return json },
		TooLarge:       "max_allowed_packet",
		Admin:          connect(t, config),
	}
	require.NoError(t, b.Admin.QueryRow("SELECT @@max_allowed_packet").Scan(&b.MaxSize))
	for _, parameters := range benchParameters {
		db := connect(t, withParameters(config, parameters.values))
		b.Drivers = append(b.Drivers, inboxtest.BenchDriver{Name: parameters.name, DB: wsql.BeginnerFromStdSQL(db)})
	}
	b.CreateTables(t)
	for _, outbox := range []inboxtest.OutboxSchema{b.Outbox, b.JSONOutbox} {
		// With interpolateParams MySQL takes no metadata for JSON.
		exec(t, b.Admin, "ALTER TABLE "+outbox.MessagesTable("")+" MODIFY metadata LONGBLOB")
	}
	return b
}

// outboxOf is an outbox in a table that is named after the type of its payload.
func outboxOf(payload string) inboxtest.OutboxSchema {
	return wsql.DefaultMySQLSchema{
		GenerateMessagesTableName: func(string) string { return "outbox_" + payload },
		GeneratePayloadType:       func(string) string { return payload },
	}
}
