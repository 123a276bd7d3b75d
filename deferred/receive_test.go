package deferred_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/sqlite"
)

// A PoisonQueueWithFilter around a Receiver must not give messages up because the database was busy or away.
func TestReceiveError_is_poison_only_if_messages_are_at_fault(t *testing.T) {
	t.Parallel()

	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(50)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	receiver, err := deferred.NewReceiver(wsql.BeginnerFromStdSQL(db), deferred.ReceiverConfig{
		Schema: sqlite.Schema{}, Consumer: "c", Timeout: 100 * time.Millisecond, MaxMessageSize: 10, AutoInitializeSchema: true,
	}, nil)
	require.NoError(t, err)
	receive := func(messages ...*message.Message) error {
		_, err := receiver.Receive(context.Background(), "topic", messages...)
		require.Error(t, err)
		return err
	}
	good, nameless := message.NewMessage("1", nil), message.NewMessage("", nil)
	large := message.NewMessage("2", []byte(strings.Repeat("x", 11)))

	require.True(t, inbox.IsPoison(receive(nameless)))
	require.True(t, inbox.IsPoison(receive(large)))

	writer, err := db.Begin()
	require.NoError(t, err)
	busy := receive(good)
	require.ErrorContains(t, busy, "locked")
	require.False(t, inbox.IsPoison(busy))
	require.True(t, inbox.IsRetryable(busy))
	require.False(t, inbox.IsPoison(receive(nameless, large, good)), "one of them is not at fault")
	require.NoError(t, writer.Rollback())

	_, err = db.Exec("DROP TABLE inbox_pending")
	require.NoError(t, err)
	require.False(t, inbox.IsPoison(receive(good)))
	require.NoError(t, db.Close())
	require.False(t, inbox.IsPoison(receive(good)))
}
