// Package retention_test removes identities from real databases.
package retention_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/retention"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// lab is an empty database with the tables of an inbox, and the test's own access to it.
type lab struct {
	testing.TB
	databases.Database
	dsn  string
	db   *sql.DB
	pool wsql.Beginner
}

// onEach runs a test on every database.
func onEach(t *testing.T, test func(l *lab)) {
	t.Helper()
	for name, d := range databases.All {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(newLab(t, d))
		})
	}
}

func newLab(t testing.TB, d databases.Database) *lab {
	t.Helper()
	l := &lab{TB: t, Database: d, dsn: d.Create(t)}
	var err error
	l.db, err = sql.Open(l.Driver, l.dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.db.Close() })
	l.pool = l.open(8)
	_, err = inbox.New(l.pool, inbox.Config{Schema: l.Schema, Consumer: "c", AutoInitializeSchema: true}, nil)
	require.NoError(t, err)
	return l
}

func (l *lab) open(connections int) wsql.Beginner {
	l.Helper()
	pool, closePool, err := l.Open(l.dsn, connections)
	require.NoError(l, err)
	l.Cleanup(closePool)
	return pool
}

func (l *lab) dialect() retention.Dialect { return l.Schema.(retention.Dialect) }

func (l *lab) literal(value string) string { return string(l.dialect().AppendBytes(nil, value)) }

// add stores an identity as if it had been processed some time ago.
func (l *lab) add(consumer string, identity inbox.Identity, ago time.Duration) {
	l.Helper()
	insert := l.Schema.InsertQuery(inbox.Row{Consumer: consumer, Producer: identity.Producer, ID: identity.ID, Fingerprint: "f:1"})
	l.exec(insert.Query)
	l.age(ago, fmt.Sprintf("consumer = %s AND producer = %s AND message_id = %s", l.literal(consumer), l.literal(identity.Producer), l.literal(identity.ID)))
}

// age makes identities older.
func (l *lab) age(ago time.Duration, where string) {
	l.Helper()
	seconds := int(ago.Seconds())
	older := map[string]string{
		"pgx":    fmt.Sprintf("processed_at - interval '%d seconds'", seconds),
		"mysql":  fmt.Sprintf("processed_at - INTERVAL %d SECOND", seconds),
		"sqlite": fmt.Sprintf("processed_at - %d", seconds),
	}[l.Driver]
	l.exec("UPDATE inbox_messages SET processed_at = " + older + " WHERE " + where)
}

// now is an expression for the time of an identity that is processed just now.
func (l *lab) now() string {
	return map[string]string{"pgx": "now()", "mysql": "UTC_TIMESTAMP()", "sqlite": "CAST(strftime('%s', 'now') AS INTEGER)"}[l.Driver]
}

func (l *lab) exec(statement string) {
	l.Helper()
	_, err := l.db.Exec(statement)
	require.NoError(l, err, statement)
}

func (l *lab) count(query string) (n int) {
	l.Helper()
	require.NoError(l, l.db.QueryRow(query).Scan(&n), query)
	return n
}

// identities returns what is left, as consumer/producer/id.
func (l *lab) identities() (all []string) {
	l.Helper()
	rows, err := l.db.Query("SELECT consumer, producer, message_id FROM inbox_messages ORDER BY consumer, producer, message_id")
	require.NoError(l, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var consumer, producer, id []byte
		require.NoError(l, rows.Scan(&consumer, &producer, &id))
		all = append(all, fmt.Sprintf("%s/%s/%s", consumer, producer, id))
	}
	require.NoError(l, rows.Err())
	return all
}

// receive makes a message pending.
func (l *lab) receive(consumer, topic, id string) {
	l.Helper()
	receiver, err := deferred.NewReceiver(l.pool, deferred.ReceiverConfig{Schema: l.Schema, Consumer: consumer, AutoInitializeSchema: true}, nil)
	require.NoError(l, err)
	outcomes, err := receiver.Receive(context.Background(), topic, message.NewMessage(id, []byte("payload of "+id)))
	require.NoError(l, err)
	require.Equal(l, []deferred.ReceiveOutcome{deferred.Stored}, outcomes)
}

func (l *lab) cleaner(config retention.Config) *retention.Cleaner {
	l.Helper()
	config.Schema = l.Schema
	if config.Pause == 0 {
		config.Pause = time.Millisecond
	}
	cleaner, err := retention.NewCleaner(l.pool, config, nil)
	require.NoError(l, err)
	return cleaner
}

func (l *lab) sweep(config retention.Config) retention.Report {
	l.Helper()
	report, err := l.cleaner(config).RunOnce(context.Background())
	require.NoError(l, err)
	return report
}
