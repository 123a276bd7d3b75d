package deferred_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// outbox is one way to write messages in a transaction and to read them for a relay: ours or one of watermill-sql's.
type outbox struct {
	*testing.T
	db       *sql.DB
	publish  func(tx *sql.Tx, msg *message.Message) error
	messages <-chan *message.Message
}

const events = "events"

// openOutboxes makes our outbox and one of watermill-sql's in a new database.
func openOutboxes(t *testing.T, name string, schema wsql.SchemaAdapter, offsets wsql.OffsetsAdapter, ackDeadline time.Duration) (ours, theirs *outbox) {
	t.Helper()
	d := databases.All[name]
	dsn := d.Create(t)
	db, err := sql.Open(d.Driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	pool := wsql.BeginnerFromStdSQL(db)

	relay, err := deferred.NewSubscriber(pool, deferred.SubscriberConfig{
		Schema: d.Schema, Consumer: deferred.DefaultRelay, Queue: deferred.Outgoing, PollInterval: 50 * time.Millisecond, Lease: 900 * time.Millisecond,
		CloseTimeout: time.Second, AutoInitializeSchema: true,
	}, nil)
	require.NoError(t, err)
	factory := deferred.Outbox(deferred.OutboxConfig{Schema: d.Schema})
	ours = &outbox{T: t, db: db, publish: func(tx *sql.Tx, msg *message.Message) error {
		publisher, err := factory(wsql.TxFromStdSQL(tx))
		if err != nil {
			return err
		}
		return publisher.Publish(events, msg)
	}}
	ours.subscribe(relay)

	reader, err := wsql.NewSubscriber(pool, wsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: offsets, PollInterval: 50 * time.Millisecond, AckDeadline: &ackDeadline, InitializeSchema: true,
	}, watermill.NopLogger{})
	require.NoError(t, err)
	theirs = &outbox{T: t, db: db, publish: func(tx *sql.Tx, msg *message.Message) error {
		publisher, err := wsql.NewPublisher(wsql.TxFromStdSQL(tx), wsql.PublisherConfig{SchemaAdapter: schema}, watermill.NopLogger{})
		if err != nil {
			return err
		}
		return publisher.Publish(events, msg)
	}}
	theirs.subscribe(reader)
	return ours, theirs
}

func (o *outbox) subscribe(subscriber message.Subscriber) {
	o.Helper()
	var err error
	o.messages, err = subscriber.Subscribe(context.Background(), events)
	require.NoError(o, err)
	o.Cleanup(func() { _ = subscriber.Close() })
}

// put publishes a message in a transaction of its own.
func (o *outbox) put(ctx context.Context, id string) error {
	tx, err := o.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	msg := message.NewMessage(id, []byte("{}"))
	msg.SetContext(ctx)
	if err := o.publish(tx, msg); err != nil {
		return err
	}
	return tx.Commit()
}

func (o *outbox) mustPut(ids ...string) {
	o.Helper()
	for _, id := range ids {
		require.NoError(o, o.put(context.Background(), id))
	}
}

// next returns a message that is not acked, or nil after a while.
func (o *outbox) next(patience time.Duration) *message.Message {
	select {
	case msg := <-o.messages:
		return msg
	case <-time.After(patience):
		return nil
	}
}

const (
	long  = 20 * time.Second // for what must come
	short = 2 * time.Second  // for what must not
)

// A transaction elsewhere in the server, that has nothing to do with the outbox, holds up watermill-sql's default schema for PostgreSQL, and not ours.
func TestRelayBesideALongTransaction(t *testing.T) {
	ours, theirs := openOutboxes(t, "postgres-std", wsql.DefaultPostgreSQLSchema{}, wsql.DefaultPostgreSQLOffsetsAdapter{}, 0)
	handler, err := ours.db.Begin()
	require.NoError(t, err)
	defer func() { _ = handler.Rollback() }()
	_, err = handler.Exec("SELECT pg_current_xact_id()") // it writes
	require.NoError(t, err)

	ours.mustPut("1")
	theirs.mustPut("1")
	msg := ours.next(long)
	require.NotNil(t, msg)
	require.True(t, msg.Ack())
	require.Nil(t, theirs.next(short), "the limit is gone: tell the documentation")

	require.NoError(t, handler.Rollback())
	require.NotNil(t, theirs.next(long))
}

// While a relay waits for its broker, watermill-sql's default schema for MySQL blocks those who publish to the same topic, and ours does not.
func TestRelayBlocksNoProducer(t *testing.T) {
	for _, name := range []string{"mysql", "mariadb"} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := openOutboxes(t, name, wsql.DefaultMySQLSchema{}, wsql.DefaultMySQLOffsetsAdapter{}, 0)
			ours.mustPut("1")
			theirs.mustPut("1")
			first, held := ours.next(long), theirs.next(long)
			require.NotNil(t, first)
			require.NotNil(t, held)

			ours.mustPut("2")
			second := ours.next(long)
			require.NotNil(t, second, "the relay's first message is not acked, and the second comes nevertheless")
			ctx, cancel := context.WithTimeout(context.Background(), short)
			defer cancel()
			require.Error(t, theirs.put(ctx, "2"), "the limit is gone: tell the documentation")
			require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded, "it was blocked")

			for _, msg := range []*message.Message{first, second, held} {
				require.True(t, msg.Ack())
			}
			theirs.mustPut("3")
		})
	}
}

// When the broker takes longer for one message than the ack deadline, watermill-sql's queue schema deletes the rest of its batch undelivered. A lease is renewed.
func TestRelayOfASlowBroker(t *testing.T) {
	const messages, slow = 10, 2 * time.Second
	ours, theirs := openOutboxes(t, "postgres-std", wsql.PostgreSQLQueueSchema{}, wsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true}, slow/4)
	for _, o := range []*outbox{ours, theirs} {
		tx, err := o.db.Begin()
		require.NoError(t, err)
		for n := range messages {
			require.NoError(t, o.publish(tx, message.NewMessage(string(rune('a'+n)), []byte("{}"))))
		}
		require.NoError(t, tx.Commit())
	}
	relayed := func(o *outbox) int {
		ids := map[string]bool{}
		for n := 0; ; n++ {
			msg := o.next(short)
			if msg == nil {
				return len(ids)
			}
			if n == 1 {
				time.Sleep(slow)
			}
			if msg.Ack() {
				ids[msg.UUID] = true
			}
		}
	}
	require.Equal(t, messages, relayed(ours))
	require.Less(t, relayed(theirs), messages, "the limit is gone: tell the documentation")
	var left int
	require.NoError(t, ours.db.QueryRow("SELECT COUNT(*) FROM inbox_outgoing").Scan(&left))
	require.Zero(t, left)
}
