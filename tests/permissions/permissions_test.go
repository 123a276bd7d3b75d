// Package permissions_test runs the parts of the library as users of the database with no more rights than docs/operations.md names.
package permissions_test

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/retention"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// roles are the rights of docs/operations.md, and what a user with them must be able to do.
var roles = []struct {
	name   string
	grants map[string]string // by table
	use    func(t *testing.T, pool wsql.Beginner, schema inbox.Schema)
}{
	{"direct", map[string]string{"inbox_messages": "SELECT, INSERT"}, useDirect},
	{"receiver", map[string]string{"inbox_messages": "SELECT", "inbox_pending": "SELECT, INSERT, UPDATE"}, useReceiver},
	{"worker", map[string]string{"inbox_messages": "SELECT, INSERT", "inbox_pending": "SELECT, UPDATE, DELETE"}, useWorker},
	{"cleaner", map[string]string{"inbox_messages": "SELECT, DELETE", "inbox_pending": "SELECT, UPDATE", "inbox_outgoing": "SELECT, UPDATE"}, useCleaner},
	{"watcher", map[string]string{"inbox_messages": "SELECT", "inbox_pending": "SELECT"}, useWatcher},
}

func TestRightsThatSuffice(t *testing.T) {
	for name, d := range databases.All {
		if d.Driver == "sqlite" {
			continue // it has no users
		}
		t.Run(name, func(t *testing.T) {
			dsn := d.Create(t)
			owner, closeOwner, err := d.Open(dsn, 4)
			require.NoError(t, err)
			t.Cleanup(closeOwner)
			_, err = inbox.New(owner, inbox.Config{Schema: d.Schema, Consumer: "c", AutoInitializeSchema: true}, nil)
			require.NoError(t, err)
			for _, queue := range []deferred.Queue{deferred.Pending, deferred.Outgoing} {
				store, err := deferred.NewStore(owner, d.Schema, queue, nil)
				require.NoError(t, err)
				require.NoError(t, store.InitializeSchema(context.Background()))
			}
			for _, role := range roles {
				t.Run(role.name, func(t *testing.T) {
					pool, closePool, err := d.Open(newUser(t, d, dsn, role.grants), 6)
					require.NoError(t, err)
					defer closePool()
					role.use(t, pool, d.Schema)
				})
			}
		})
	}
}

// newUser makes a user with rights on some tables, and returns the DSN of that user.
func newUser(t *testing.T, d databases.Database, dsn string, grants map[string]string) string {
	t.Helper()
	db, err := sql.Open(d.Driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	exec := func(statement string) {
		_, err := db.Exec(statement)
		require.NoError(t, err, statement)
	}
	name := fmt.Sprintf("inbox_%x", rand.Uint32())
	if d.Driver == "pgx" {
		exec("CREATE ROLE " + name + " LOGIN")
		t.Cleanup(func() { exec("DROP OWNED BY " + name); exec("DROP ROLE " + name) })
		for table, rights := range grants {
			exec("GRANT " + rights + " ON " + table + " TO " + name)
		}
		address, err := url.Parse(dsn)
		require.NoError(t, err)
		address.User = url.User(name)
		return address.String()
	}
	exec("CREATE USER " + name + "@'%'")
	t.Cleanup(func() { exec("DROP USER " + name) })
	for table, rights := range grants {
		exec("GRANT " + rights + " ON " + table + " TO " + name)
	}
	config, err := driver.ParseDSN(dsn)
	require.NoError(t, err)
	config.User, config.Passwd = name, ""
	return config.FormatDSN()
}

func useDirect(t *testing.T, pool wsql.Beginner, schema inbox.Schema) {
	box, err := inbox.New(pool, inbox.Config{Schema: schema, Consumer: "direct"}, nil)
	require.NoError(t, err)
	require.NoError(t, box.Verify(context.Background()))
	for _, want := range []inbox.Outcome{inbox.Processed, inbox.Duplicate} {
		outcome, err := box.Process(message.NewMessage("1", nil), func(context.Context) error { return nil })
		require.NoError(t, err)
		require.Equal(t, want, outcome)
	}
}

func useReceiver(t *testing.T, pool wsql.Beginner, schema inbox.Schema) {
	receiver, err := deferred.NewReceiver(pool, deferred.ReceiverConfig{Schema: schema, Consumer: "c"}, nil)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, receiver.Publish("topic", message.NewMessage("1", nil)))
	}
}

// useWorker handles what useReceiver stored.
func useWorker(t *testing.T, pool wsql.Beginner, schema inbox.Schema) {
	subscriber, err := deferred.NewSubscriber(pool, deferred.SubscriberConfig{Schema: schema, Consumer: "c", InitialBackoff: time.Millisecond}, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, subscriber.Close()) }()
	box, err := inbox.New(pool, inbox.Config{Schema: schema, Consumer: "c"}, nil)
	require.NoError(t, err)
	messages, err := subscriber.Subscribe(context.Background(), "topic")
	require.NoError(t, err)
	for _, fail := range []error{context.DeadlineExceeded, nil} {
		select {
		case msg := <-messages:
			_, err := box.Process(msg, func(context.Context) error { return fail })
			require.Equal(t, fail == nil, err == nil, err)
			if err != nil {
				msg.Nack()
			} else {
				msg.Ack()
			}
		case <-time.After(30 * time.Second):
			require.FailNow(t, "no message")
		}
	}
}

func useCleaner(t *testing.T, pool wsql.Beginner, schema inbox.Schema) {
	cleaner, err := retention.NewCleaner(pool, retention.Config{Schema: schema, Horizon: time.Nanosecond, DeadPayloads: time.Nanosecond, Pause: time.Millisecond}, nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool { // identities have an age of whole seconds
		report, err := cleaner.RunOnce(context.Background())
		require.NoError(t, err)
		return report.Removed() > 0
	}, 30*time.Second, 200*time.Millisecond)
}

func useWatcher(t *testing.T, pool wsql.Beginner, schema inbox.Schema) {
	store, err := deferred.NewStore(pool, schema, deferred.Pending, nil)
	require.NoError(t, err)
	_, _, err = store.CountUpTo(context.Background(), 10)
	require.NoError(t, err)
	identities, err := retention.NewIdentities(pool, schema, nil)
	require.NoError(t, err)
	_, err = identities.Consumers(context.Background())
	require.NoError(t, err)
}
