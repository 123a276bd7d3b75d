package deferred_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/deferred"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/sqlite"
)

// An operator who looks must not wait for the handler in flight, which is the writer of SQLite for as long as it runs. With
// _txlock=immediate, as recommended, every transaction begins as the writer unless it says that it only reads.
func TestStore_reads_while_a_handler_writes(t *testing.T) {
	t.Parallel()

	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	pool := wsql.BeginnerFromStdSQL(db)
	receiver, err := deferred.NewReceiver(pool, deferred.ReceiverConfig{Schema: sqlite.Schema{}, Consumer: "c", AutoInitializeSchema: true}, nil)
	require.NoError(t, err)
	require.NoError(t, receiver.Publish("topic", message.NewMessage("1", nil)))
	store, err := deferred.NewStore(pool, sqlite.Schema{}, deferred.Pending, nil)
	require.NoError(t, err)

	handler, err := db.Begin()
	require.NoError(t, err)
	defer func() { _ = handler.Rollback() }()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()

	counts, err := store.Count(ctx)
	require.NoError(t, err)
	require.Len(t, counts, 1)
	require.EqualValues(t, 1, counts[0].Pending)
	listed, err := store.List(ctx, deferred.Filter{})
	require.NoError(t, err)
	require.Len(t, listed, 1)
	msg, err := store.Load(ctx, listed[0].Number)
	require.NoError(t, err)
	require.Equal(t, "1", msg.UUID)
}
