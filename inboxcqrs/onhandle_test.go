package inboxcqrs_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxcqrs"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/sqlite"
)

type bookRoom struct{ Guest string }

type roomBooked struct{ Guest string }

var errFull = errors.New("hotel is full")

// fixture is a router with an inbox on SQLite and a channel as its broker.
type fixture struct {
	db      *sql.DB
	inbox   *inbox.Inbox
	channel *gochannel.GoChannel
	router  *message.Router
	results chan error // of each delivery, as the inbox returned it
}

func newFixture(t *testing.T, inside ...message.HandlerMiddleware) *fixture {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "cqrs.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })

	_, err = db.Exec("CREATE TABLE biz (guest TEXT)")
	require.NoError(t, err)
	outboxSchema := sqlite.OutboxSchema{}
	queries, err := outboxSchema.SchemaInitializingQueries(wsql.SchemaInitializingQueriesParams{Topic: "events"})
	require.NoError(t, err)
	for _, query := range queries {
		_, err = db.Exec(query.Query, query.Args...)
		require.NoError(t, err)
	}

	f := &fixture{db: db, results: make(chan error, 100)}
	f.inbox, err = inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{
		Schema:               sqlite.Schema{},
		AutoInitializeSchema: true,
		Outbox:               inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: outboxSchema}, nil),
	}, nil)
	require.NoError(t, err)

	f.channel = gochannel.NewGoChannel(gochannel.Config{}, watermill.NopLogger{})
	f.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: 5 * time.Second}, watermill.NopLogger{})
	require.NoError(t, err)
	f.router.AddMiddleware(f.report, f.inbox.Middleware)
	f.router.AddMiddleware(inside...)
	return f
}

// report makes every delivery visible and acks it, so that a nack does not repeat it for ever.
func (f *fixture) report(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		_, err := h(msg)
		f.results <- err
		return nil, nil
	}
}

func (f *fixture) run(t *testing.T) {
	t.Helper()
	go func() { _ = f.router.Run(context.Background()) }()
	<-f.router.Running()
	t.Cleanup(func() { require.NoError(t, f.router.Close()) })
}

func (f *fixture) count(t *testing.T, table string) int {
	t.Helper()
	var n int
	require.NoError(t, f.db.QueryRow("SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func (f *fixture) book(ctx context.Context, guest string) error {
	tx, ok := inbox.StdTxFromContext(ctx)
	if !ok {
		return inbox.ErrNoTransaction
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO biz VALUES (?)", guest)
	return err
}

func (f *fixture) addCommandHandler(t *testing.T, onHandle cqrs.CommandProcessorOnHandleFn, handle func(ctx context.Context, cmd *bookRoom) error) *cqrs.CommandBus {
	t.Helper()
	processor, err := cqrs.NewCommandProcessorWithConfig(f.router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return "commands", nil },
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return f.channel, nil
		},
		OnHandle:                 onHandle,
		Marshaler:                cqrs.JSONMarshaler{},
		AckCommandHandlingErrors: true,
	})
	require.NoError(t, err)
	require.NoError(t, processor.AddHandlers(cqrs.NewCommandHandler("book", handle)))

	bus, err := cqrs.NewCommandBusWithConfig(f.channel, cqrs.CommandBusConfig{
		GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return "commands", nil },
		Marshaler:            cqrs.JSONMarshaler{},
	})
	require.NoError(t, err)
	return bus
}

// Without the adapter a hidden error commits the half-done work; with it nothing is stored.
func TestOnCommandSeesHiddenErrors(t *testing.T) {
	for name, test := range map[string]struct {
		onHandle cqrs.CommandProcessorOnHandleFn
		err      error
		rows     int
	}{
		"without the adapter": {nil, nil, 1},
		"with the adapter":    {inboxcqrs.OnCommand(nil), errFull, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			bus := f.addCommandHandler(t, test.onHandle, func(ctx context.Context, cmd *bookRoom) error {
				if err := f.book(ctx, cmd.Guest); err != nil {
					return err
				}
				return errFull
			})
			f.run(t)

			require.NoError(t, bus.Send(context.Background(), &bookRoom{"Ada"}))
			require.ErrorIs(t, <-f.results, test.err)
			require.Equal(t, test.rows, f.count(t, "biz"))
			require.Equal(t, test.rows, f.count(t, "inbox_messages"))
		})
	}
}

// One long-lived bus over Inbox.Publisher publishes in the transaction of each handler.
func TestEventBusInTransaction(t *testing.T) {
	f := newFixture(t)
	events, err := cqrs.NewEventBusWithConfig(f.inbox.Publisher(), cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return "events", nil },
		Marshaler:            cqrs.JSONMarshaler{},
	})
	require.NoError(t, err)

	var calls atomic.Int32
	bus := f.addCommandHandler(t, inboxcqrs.OnCommand(nil), func(ctx context.Context, cmd *bookRoom) error {
		if err := f.book(ctx, cmd.Guest); err != nil {
			return err
		}
		if err := events.Publish(ctx, &roomBooked{cmd.Guest}); err != nil {
			return err
		}
		if calls.Add(1) == 1 {
			return errFull
		}
		return nil
	})
	f.run(t)

	require.NoError(t, bus.Send(context.Background(), &bookRoom{"Ada"}))
	require.ErrorIs(t, <-f.results, errFull)
	require.Zero(t, f.count(t, "watermill_events"))

	require.NoError(t, bus.Send(context.Background(), &bookRoom{"Grace"}))
	require.NoError(t, <-f.results)
	require.Equal(t, 1, f.count(t, "watermill_events"))
	require.Equal(t, 1, f.count(t, "biz"))
	require.ErrorIs(t, events.Publish(context.Background(), &roomBooked{}), inbox.ErrNoTransaction)
}

// T10: a Retry inside the inbox would commit the writes of the failed run.
func TestT10RetryInsideIsRefused(t *testing.T) {
	retry := middleware.Retry{MaxRetries: 2, InitialInterval: time.Millisecond}
	f := newFixture(t, retry.Middleware)
	processor, err := cqrs.NewEventProcessorWithConfig(f.router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return "booked", nil },
		SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return f.channel, nil
		},
		OnHandle:  inboxcqrs.OnEvent(nil),
		Marshaler: cqrs.JSONMarshaler{},
	})
	require.NoError(t, err)
	var calls atomic.Int32
	require.NoError(t, processor.AddHandlers(cqrs.NewEventHandler("welcome", func(ctx context.Context, event *roomBooked) error {
		if err := f.book(ctx, event.Guest); err != nil {
			return err
		}
		if calls.Add(1) == 1 {
			return errFull
		}
		return nil
	})))
	f.run(t)

	f.publish(t, "booked", "e1")
	require.ErrorIs(t, <-f.results, inbox.ErrRetryInside)
	require.EqualValues(t, 1, calls.Load())
	require.Zero(t, f.count(t, "biz"))
	require.Zero(t, f.count(t, "inbox_messages"))
}

// The handlers of a group run in one transaction: all of them commit, or none.
func TestOnEventGroup(t *testing.T) {
	f := newFixture(t)
	processor, err := cqrs.NewEventGroupProcessorWithConfig(f.router, cqrs.EventGroupProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) { return "booked", nil },
		SubscriberConstructor: func(cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return f.channel, nil
		},
		OnHandle:  inboxcqrs.OnEventGroup(nil),
		Marshaler: cqrs.JSONMarshaler{},
	})
	require.NoError(t, err)
	var fail atomic.Bool
	fail.Store(true)
	require.NoError(t, processor.AddHandlersGroup("front-desk",
		cqrs.NewGroupEventHandler(func(ctx context.Context, event *roomBooked) error { return f.book(ctx, "key for "+event.Guest) }),
		cqrs.NewGroupEventHandler(func(ctx context.Context, event *roomBooked) error {
			if fail.Load() {
				return errFull
			}
			return f.book(ctx, "towels for "+event.Guest)
		}),
	))
	f.run(t)

	f.publish(t, "booked", "e1")
	require.ErrorIs(t, <-f.results, errFull)
	require.Zero(t, f.count(t, "biz"))

	fail.Store(false)
	f.publish(t, "booked", "e1")
	require.NoError(t, <-f.results)
	require.Equal(t, 2, f.count(t, "biz"))

	f.publish(t, "booked", "e1")
	require.NoError(t, <-f.results)
	require.Equal(t, 2, f.count(t, "biz"))
	require.Equal(t, 1, f.count(t, "inbox_messages"))
}

func (f *fixture) publish(t *testing.T, topic, id string) {
	t.Helper()
	msg, err := cqrs.JSONMarshaler{NewUUID: func() string { return id }}.Marshal(&roomBooked{"Ada"})
	require.NoError(t, err)
	require.NoError(t, f.channel.Publish(topic, msg))
}
