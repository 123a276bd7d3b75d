package deferred_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// lab is an empty database with the tables of a deferred inbox, and the test's own access to it.
type lab struct {
	*testing.T
	databases.Database
	name, dsn string
	db        *sql.DB
	receiver  *deferred.Receiver
	store     *deferred.Store
}

func newLab(t *testing.T, name string) *lab {
	t.Helper()
	l := &lab{T: t, Database: databases.All[name], name: name}
	l.dsn = l.Create(t)
	var err error
	l.db, err = sql.Open(l.Driver, l.dsn)
	require.NoError(t, err)
	l.db.SetMaxOpenConns(4)
	t.Cleanup(func() { _ = l.db.Close() })

	// No key is unique: the inbox alone must prevent a second row.
	l.exec("CREATE TABLE effects (message_id VARCHAR(100) NOT NULL, attempt INT NOT NULL)")
	pool, closePool, err := l.Open(l.dsn, 4)
	require.NoError(t, err)
	t.Cleanup(closePool)
	_, err = inbox.New(pool, inbox.Config{Schema: l.Schema, Consumer: consumer, AutoInitializeSchema: true}, nil)
	require.NoError(t, err)
	l.receiver = l.newReceiver(consumer)
	require.NoError(t, l.receiver.InitializeSchema(context.Background()))
	l.store, err = deferred.NewStore(pool, l.Schema, deferred.Pending, nil)
	require.NoError(t, err)
	return l
}

func (l *lab) newReceiver(consumer string) *deferred.Receiver {
	l.Helper()
	pool, closePool, err := l.Open(l.dsn, 2)
	require.NoError(l, err)
	l.Cleanup(closePool)
	receiver, err := deferred.NewReceiver(pool, deferred.ReceiverConfig{
		Schema: l.Schema, Consumer: consumer, Timeout: 20 * time.Second, OrderingKey: func(msg *message.Message) string { return msg.Metadata.Get("key") },
	}, nil)
	require.NoError(l, err)
	return receiver
}

func (l *lab) exec(statement string) {
	l.Helper()
	_, err := l.db.Exec(statement)
	require.NoError(l, err, statement)
}

// child starts a process of the service on this database.
func (l *lab) child(config childConfig, said func(line string)) *child {
	l.Helper()
	config.Database, config.DSN = l.name, l.dsn
	c, err := startChild(config, said)
	require.NoError(l, err)
	return c
}

// counted returns the counts of a consumer, over some topics or all.
func (l *lab) counted(consumer string, topics ...string) (sum deferred.Count) {
	l.Helper()
	counts, err := l.store.Count(context.Background())
	require.NoError(l, err)
	for _, c := range counts {
		if c.Consumer != consumer || len(topics) > 0 && !slices.Contains(topics, c.Topic) {
			continue
		}
		sum.Pending += c.Pending
		sum.Suspect += c.Suspect
		sum.Claimed += c.Claimed
		sum.Waiting += c.Waiting
		sum.Dead += c.Dead
	}
	return sum
}

// undecided are those neither processed nor dead.
func undecided(c deferred.Count) int64 { return c.Pending + c.Suspect + c.Claimed + c.Waiting }

// list returns the messages in the queue by id.
func (l *lab) list(filter deferred.Filter) map[string]deferred.StoredMessage {
	l.Helper()
	filter.Limit = 100_000
	found, err := l.store.List(context.Background(), filter)
	require.NoError(l, err)
	messages := make(map[string]deferred.StoredMessage, len(found))
	for _, m := range found {
		messages[m.Identity.ID] = m
	}
	return messages
}

// counts returns how many rows with each id a table of the service has.
func (l *lab) counts(query string) map[string]int {
	l.Helper()
	rows, err := l.db.Query(query)
	require.NoError(l, err)
	defer rows.Close()
	counts := map[string]int{}
	for rows.Next() {
		var (
			id []byte
			n  int
		)
		require.NoError(l, rows.Scan(&id, &n))
		counts[string(id)] = n
	}
	require.NoError(l, rows.Err())
	return counts
}

func (l *lab) effects() map[string]int {
	return l.counts("SELECT message_id, COUNT(*) FROM effects GROUP BY message_id")
}

func (l *lab) identities() map[string]int {
	return l.counts("SELECT message_id, COUNT(*) FROM inbox_messages GROUP BY message_id")
}

// eventually waits. It is bounded by what a loaded machine needs.
func (l *lab) eventually(what string, limit time.Duration, done func() bool) {
	l.Helper()
	for end := time.Now().Add(limit); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(l, "too late", "%s: not after %s; in the queue: %+v", what, limit, l.counted(consumer))
		}
	}
}

func newMessage(id string) *message.Message {
	return message.NewMessage(id, message.Payload(fmt.Sprintf("payload of %s", id)))
}

func newKeyedMessage(id, key string) *message.Message {
	msg := newMessage(id)
	msg.Metadata.Set("key", key)
	return msg
}
