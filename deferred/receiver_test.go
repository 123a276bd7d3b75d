package deferred_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/sqlite"
)

// ownReceiver is how users give a Receiver abilities of their own.
type ownReceiver struct{ *deferred.Receiver }

// An inbox on the router would count a message as processed before it is stored.
func TestReceiver_is_refused_inside_an_inbox(t *testing.T) {
	t.Parallel()

	for name, own := range map[string]func(*deferred.Receiver) message.Publisher{
		"itself":   func(r *deferred.Receiver) message.Publisher { return r },
		"embedded": func(r *deferred.Receiver) message.Publisher { return ownReceiver{r} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			db, remove := openDatabase()
			t.Cleanup(remove)
			pool := wsql.BeginnerFromStdSQL(db)
			receiver, err := deferred.NewReceiver(pool, deferred.ReceiverConfig{Schema: sqlite.Schema{}, Consumer: "c", AutoInitializeSchema: true}, nil)
			require.NoError(t, err)
			in, err := inbox.New(pool, inbox.Config{
				Schema: sqlite.Schema{}, Consumer: "c",
				Outbox: deferred.Outbox(deferred.OutboxConfig{Schema: sqlite.Schema{}}), // so that a produced message has somewhere to go
			}, nil)
			require.NoError(t, err)
			require.NoError(t, deferred.InitializeOutbox(context.Background(), pool, sqlite.Schema{}))

			failures := make(chan error, 1)
			broker := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, nil)
			router := message.NewDefaultRouter(watermill.NopLogger{})
			router.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
				return func(msg *message.Message) ([]*message.Message, error) {
					produced, err := h(msg)
					select {
					case failures <- err:
					default:
					}
					return produced, err
				}
			}, in.Middleware)
			router.AddHandler("receive", "topic", broker, "topic", own(receiver), message.PassthroughHandler)
			go func() { _ = router.Run(context.Background()) }()
			t.Cleanup(func() { _ = router.Close() })
			<-router.Running()
			require.NoError(t, broker.Publish("topic", message.NewMessage("1", nil)))

			select {
			case err := <-failures:
				require.ErrorIs(t, err, inbox.ErrForwardsToReceiver)
				require.False(t, inbox.IsPoison(err))
			case <-time.After(10 * time.Second):
				t.Fatal("no delivery")
			}
			var rows int
			require.NoError(t, db.QueryRow("SELECT (SELECT COUNT(*) FROM inbox_messages) + (SELECT COUNT(*) FROM inbox_pending)").Scan(&rows))
			require.Zero(t, rows)
		})
	}
}
