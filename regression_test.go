package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"path/filepath"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/sqlite"
)

// Each test here is named after a fault that was found after the feature had been built.

// desk is an inbox on SQLite with a table that handlers write to and an outbox of topic "out".
type desk struct {
	*inbox.Inbox
	db      *sql.DB
	reports []inbox.DeliveryReport
	panics  bool // the Observer does
}

func (d *desk) ObserveDelivery(report inbox.DeliveryReport) {
	d.reports = append(d.reports, report)
	if d.panics {
		panic("no such label")
	}
}

func newDesk(t *testing.T, config inbox.Config) *desk {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_txlock=immediate")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.Exec("CREATE TABLE biz (text BLOB)")
	require.NoError(t, err)
	queries, err := sqlite.OutboxSchema{}.SchemaInitializingQueries(wsql.SchemaInitializingQueriesParams{Topic: "out"})
	require.NoError(t, err)
	for _, query := range queries {
		_, err = db.Exec(query.Query, query.Args...)
		require.NoError(t, err)
	}

	d := &desk{db: db}
	config.Schema, config.Consumer, config.AutoInitializeSchema, config.Observer = sqlite.Schema{}, "desk", true, d
	config.Outbox = inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: sqlite.OutboxSchema{}}, nil)
	d.Inbox, err = inbox.New(wsql.BeginnerFromStdSQL(db), config, nil)
	require.NoError(t, err)
	return d
}

func (d *desk) want(t *testing.T, biz, identities, outgoing int) {
	t.Helper()
	for table, want := range map[string]int{"biz": biz, "inbox_messages": identities, "watermill_out": outgoing} {
		var got int
		require.NoError(t, d.db.QueryRow("SELECT count(*) FROM "+table).Scan(&got))
		require.Equal(t, want, got, table)
	}
}

func write(ctx context.Context, text []byte) error {
	tx, ok := inbox.TxFromContext(ctx)
	if !ok {
		return inbox.ErrNoTransaction
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO biz VALUES (?)", text)
	return err
}

// publisherFunc is a decorator's publisher.
type publisherFunc func(topic string, msgs ...*message.Message) error

func (f publisherFunc) Publish(topic string, msgs ...*message.Message) error {
	return f(topic, msgs...)
}
func (publisherFunc) Close() error { return nil }

// A decorator that looked for the transaction in the context of an outgoing message waited for ever.
func TestDecoratorFindsTheTransaction(t *testing.T) {
	found := false
	d := newDesk(t, inbox.Config{OutboxDecorators: []message.PublisherDecorator{
		func(next message.Publisher) (message.Publisher, error) {
			return publisherFunc(func(topic string, msgs ...*message.Message) error {
				_, found = inbox.StdTxFromContext(msgs[0].Context())
				return next.Publish(topic, msgs...)
			}), nil
		},
	}})
	_, err := d.Process(message.NewMessage("m1", nil), func(ctx context.Context) error {
		return d.Publisher().Publish("out", message.NewMessageWithContext(ctx, "o1", []byte("{}")))
	})
	require.NoError(t, err)
	require.True(t, found)
	d.want(t, 0, 1, 1)
}

// A panic while publishing that the handler recovered from let the effect be committed without its message.
func TestRecoveredPanicOfPublisherIsNotCommitted(t *testing.T) {
	d := newDesk(t, inbox.Config{OutboxDecorators: []message.PublisherDecorator{
		func(message.Publisher) (message.Publisher, error) {
			return publisherFunc(func(string, ...*message.Message) error { panic("no pen") }), nil
		},
	}})
	_, err := d.Process(message.NewMessage("m1", nil), func(ctx context.Context) error {
		func() {
			defer func() { _ = recover() }()
			_ = d.Publisher().Publish("out", message.NewMessageWithContext(ctx, "o1", []byte("{}")))
		}()
		return write(ctx, []byte("x"))
	})
	require.Error(t, err)
	d.want(t, 0, 0, 0)
}

// busyError makes SQLite say that another connection writes.
func busyError(t *testing.T) error {
	t.Helper()
	dsn := "file:" + filepath.Join(t.TempDir(), "busy.db") + "?_txlock=immediate"
	var dbs [2]*sql.DB
	for n := range dbs {
		db, err := sql.Open("sqlite", dsn)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		dbs[n] = db
	}
	writer, err := dbs[0].Begin()
	require.NoError(t, err)
	_, err = dbs[1].Begin()
	require.ErrorContains(t, err, "SQLITE_BUSY")
	require.NoError(t, writer.Rollback())
	return err
}

// A further attempt in this process got the message as the one before had left it.
func TestFurtherAttemptStartsFromTheOriginalMessage(t *testing.T) {
	d := newDesk(t, inbox.Config{})
	attempts, busy := 0, busyError(t)
	handler := d.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		require.Equal(t, "m1", msg.UUID)
		require.Equal(t, "zipped", string(msg.Payload))
		require.Equal(t, message.Metadata{"encoding": "zip"}, msg.Metadata)
		msg.UUID, msg.Payload = "", []byte("plain")
		delete(msg.Metadata, "encoding")
		msg.Metadata.Set("seen", "yes")
		if attempts++; attempts < 3 {
			return nil, busy
		}
		return nil, write(msg.Context(), msg.Payload)
	})
	msg := message.NewMessage("m1", []byte("zipped"))
	msg.Metadata.Set("encoding", "zip")
	_, err := handler(msg)
	require.NoError(t, err)
	require.Equal(t, 3, attempts)
	d.want(t, 1, 1, 0)
}

// A Retry outside made the next fingerprint of what the failed attempt had left, so that the redelivery of the very same message was a mismatch.
func TestFailedDeliveryLeavesTheOriginalMessage(t *testing.T) {
	d := newDesk(t, inbox.Config{})
	attempts := 0
	handler := d.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		msg.Payload = []byte("plain")
		msg.Metadata.Set("encoding", "none")
		msg.Metadata.Set("why", "no ink")
		if attempts++; attempts == 1 {
			return nil, errors.New("no ink")
		}
		return nil, write(msg.Context(), msg.Payload)
	})
	msg := message.NewMessage("m1", []byte("zipped"))
	msg.Metadata.Set("encoding", "zip")
	_, err := handler(msg)
	require.Error(t, err)
	require.Equal(t, "zipped", string(msg.Payload))
	require.Equal(t, message.Metadata{"encoding": "zip", "why": "no ink"}, msg.Metadata)

	_, err = handler(msg)
	require.NoError(t, err)
	_, err = handler(message.NewMessage("m1", []byte("zipped")))
	require.NoError(t, err)
	require.Equal(t, 2, attempts)
	d.want(t, 1, 1, 0)
}

// The end of a truncated payload was taken for the end of the database's connection, so that the message never became poison.
func TestTruncatedPayloadIsPoison(t *testing.T) {
	for _, cause := range []error{io.EOF, io.ErrUnexpectedEOF} {
		d := newDesk(t, inbox.Config{})
		_, err := d.Process(message.NewMessage("m1", nil), func(ctx context.Context) error {
			return errors.Join(write(ctx, nil), cause)
		})
		require.ErrorIs(t, err, cause)
		require.True(t, inbox.IsPoison(err))
		d.want(t, 0, 0, 0)
	}
}

// An early ack of a message whose handler then failed was not reported.
func TestEarlyAckOfAFailedMessageIsReported(t *testing.T) {
	d := newDesk(t, inbox.Config{})
	msg := message.NewMessage("m1", nil)
	failure := errors.New("no ink")
	_, err := d.Process(msg, func(ctx context.Context) error {
		msg.Ack()
		return errors.Join(write(ctx, nil), failure)
	})
	require.ErrorIs(t, err, failure)
	require.True(t, d.reports[0].EarlyAck)
	d.want(t, 0, 0, 0)
}

// An Observer that panicked after COMMIT made a committed message poison.
func TestPanicOfTheObserverChangesNothing(t *testing.T) {
	d := newDesk(t, inbox.Config{})
	d.panics = true
	outcome, err := d.Process(message.NewMessage("m1", nil), func(ctx context.Context) error { return write(ctx, nil) })
	require.NoError(t, err)
	require.Equal(t, inbox.Processed, outcome)
	d.want(t, 1, 1, 0)

	require.PanicsWithValue(t, "of the handler", func() {
		_, _ = d.Process(message.NewMessage("m2", nil), func(ctx context.Context) error {
			_ = write(ctx, nil)
			panic("of the handler")
		})
	})
	d.want(t, 1, 1, 0)
}

// A panic that a middleware between the inbox and a typed handler hid was committed with what the handler had done up to there.
func TestHiddenPanicIsRolledBack(t *testing.T) {
	d := newDesk(t, inbox.Config{})
	typed := inbox.ConsumeTx(func(_ *message.Message, tx wsql.Tx) error {
		if _, err := tx.ExecContext(context.Background(), "INSERT INTO biz VALUES (x'')"); err != nil {
			return err
		}
		panic("half way")
	})
	handler := d.Middleware(func(msg *message.Message) (produced []*message.Message, err error) {
		defer func() { _ = recover() }()
		return nil, typed(msg)
	})
	_, err := handler(message.NewMessage("m1", nil))
	require.ErrorContains(t, err, "panicked")
	d.want(t, 0, 0, 0)
}

// A handler that decrypted in place got its own output when the message was tried again, and a Retry outside stored the sum of it, so that the
// redelivery of the original was a mismatch.
func TestPayloadChangedInPlaceIsNotTriedAgain(t *testing.T) {
	busy := busyError(t)
	for name, failure := range map[string]error{"own error": errors.New("no ink"), "conflict": busy, "panic": nil} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t, inbox.Config{})
			attempts := 0
			handler := middleware.Recoverer(d.Middleware(func(msg *message.Message) ([]*message.Message, error) {
				attempts++
				copy(msg.Payload, "plain!")
				if err := write(msg.Context(), msg.Payload); err != nil || attempts > 1 {
					return nil, err
				}
				if failure == nil {
					panic("no ink")
				}
				return nil, failure
			}))
			_, err := handler(message.NewMessage("m1", []byte("zipped")))
			require.Equal(t, 1, attempts)
			require.ErrorIs(t, d.reports[0].Err, inbox.ErrPayloadChanged)
			d.want(t, 0, 0, 0)
			if failure != nil {
				require.ErrorIs(t, err, inbox.ErrPayloadChanged)
				require.False(t, inbox.IsRetryable(err), "the original is with the broker")
				require.False(t, inbox.IsPoison(err), "the poison queue would get the damaged payload")
			}

			_, err = handler(message.NewMessage("m1", []byte("zipped")))
			require.NoError(t, err, "a run that succeeds may leave the payload as it likes")
			d.want(t, 1, 1, 0)
		})
	}
}

// codedError is an error of some other system.
type codedError struct{}

func (codedError) Error() string { return "payment provider: declined" }
func (codedError) Code() int     { return 5 }

// Any error with a code was taken for SQLite's, so that a declined payment was a busy database and never poison.
func TestOnlyErrorsOfTheDriverAreSQLites(t *testing.T) {
	d := newDesk(t, inbox.Config{})
	attempts := 0
	_, err := d.Process(message.NewMessage("m1", nil), func(ctx context.Context) error {
		attempts++
		return errors.Join(write(ctx, nil), codedError{})
	})
	require.ErrorIs(t, err, codedError{})
	require.True(t, inbox.IsPoison(err))
	require.Equal(t, 1, attempts)
	d.want(t, 0, 0, 0)
}

// The error of another transaction that the handler had closed twice was taken for the end of the inbox's own.
func TestEndOfAnotherTransactionIsTheHandlersError(t *testing.T) {
	d := newDesk(t, inbox.Config{})
	_, err := d.Process(message.NewMessage("m1", nil), func(ctx context.Context) error {
		return errors.Join(write(ctx, nil), sql.ErrTxDone)
	})
	require.ErrorIs(t, err, sql.ErrTxDone)
	require.NotErrorIs(t, err, inbox.ErrTransactionLost)
	require.True(t, inbox.IsPoison(err))
	d.want(t, 0, 0, 0)

	_, err = d.Process(message.NewMessage("m2", nil), func(ctx context.Context) error {
		tx, _ := inbox.StdTxFromContext(ctx)
		return errors.Join(tx.Rollback(), write(ctx, nil))
	})
	require.ErrorIs(t, err, inbox.ErrTransactionLost)
	d.want(t, 0, 0, 0)
}
