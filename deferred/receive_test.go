package deferred_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"strconv"
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

// When the database did not store one of many messages of a call, those after it overtook it.
func TestReceive_lets_no_message_of_an_ordering_key_overtake_another(t *testing.T) {
	t.Parallel()

	db, remove := openDatabase()
	t.Cleanup(remove)
	receiver, err := deferred.NewReceiver(wsql.BeginnerFromStdSQL(db), deferred.ReceiverConfig{
		Schema: sqlite.Schema{}, Consumer: "c", AutoInitializeSchema: true,
		OrderingKey: func(msg *message.Message) string { return msg.Metadata.Get("key") },
	}, nil)
	require.NoError(t, err)
	_, err = db.Exec("CREATE TRIGGER refuse BEFORE INSERT ON inbox_pending WHEN NEW.message_id = CAST('10' AS BLOB) BEGIN SELECT RAISE(ABORT, 'no ink'); END")
	require.NoError(t, err)

	messages := make([]*message.Message, 500) // more than one statement takes
	for n := range messages {
		messages[n] = message.NewMessage(strconv.Itoa(n), nil)
		messages[n].Metadata.Set("key", []string{"a", "b", ""}[n%3])
	}
	var failed *deferred.ReceiveError
	require.ErrorAs(t, receiver.Publish("topic", messages...), &failed)
	for _, one := range failed.Failed {
		require.Equal(t, "b", messages[one.Index].Metadata.Get("key"))
		require.GreaterOrEqual(t, one.Index, 10)
		require.False(t, inbox.IsPoison(one.Err))
	}
	stored := func() (ids []string) {
		rows, err := db.Query("SELECT CAST(message_id AS TEXT) FROM inbox_pending WHERE ordering_key = CAST('b' AS BLOB) ORDER BY seq")
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var id string
			require.NoError(t, rows.Scan(&id))
			ids = append(ids, id)
		}
		return ids
	}
	require.Equal(t, []string{"1", "4", "7"}, stored())

	_, err = db.Exec("DROP TRIGGER refuse")
	require.NoError(t, err)
	require.NoError(t, receiver.Publish("topic", messages...))
	var want []string
	for n := 1; n < len(messages); n += 3 {
		want = append(want, strconv.Itoa(n))
	}
	require.Equal(t, want, stored())
}
