package sqlite_test

import (
	"path/filepath"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/sqlite"
)

func FuzzIdentity(f *testing.F) { inboxtest.FuzzIdentity(f, newBench(f)) }
func FuzzPayload(f *testing.F)  { inboxtest.FuzzPayload(f, newBench(f)) }

func TestNeighboursAreNeverMistaken(t *testing.T) { inboxtest.TestNeighbours(t, newBench(t)) }
func TestSizesOfPayloads(t *testing.T)            { inboxtest.TestPayloadSizes(t, newBench(t)) }
func TestHugeIdentitiesAndMetadata(t *testing.T)  { inboxtest.TestHugeTexts(t, newBench(t)) }

func newBench(t testing.TB) inboxtest.Bench {
	t.Helper()
	file := "file:" + filepath.Join(t.TempDir(), "bench.db") + "?_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate"
	db := open(t, "sqlite", file, 1)
	t.Cleanup(func() { _ = db.Close() })
	b := inboxtest.Bench{
		Schema:  sqlite.Schema{},
		Outbox:  sqlite.OutboxSchema{},
		Admin:   db,
		Drivers: []inboxtest.BenchDriver{{Name: "modernc", DB: wsql.BeginnerFromStdSQL(db)}},
	}
	b.CreateTables(t)
	return b
}
