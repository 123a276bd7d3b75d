package nats

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/brokers/inboxnats"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/postgres"
)

// lab is one stream with one service that consumes it.
type lab struct {
	*testing.T
	ctx        context.Context
	connection *nats.Conn
	js         jetstream.JetStream
	name       string // of stream, subject and consumer
	db         *sql.DB
	schema     postgres.Schema
	effects    string // a table
	reports    chan inbox.DeliveryReport
}

var labNumber atomic.Int64

// newLab makes a stream with the given deduplication window.
func newLab(t *testing.T, window time.Duration) *lab {
	t.Parallel()
	l := &lab{T: t, name: fmt.Sprintf("lab_%d_%d", time.Now().UnixNano(), labNumber.Add(1)), reports: make(chan inbox.DeliveryReport, 100)}
	var cancel context.CancelFunc
	l.ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	l.connection, l.js = connect(t, address(t))
	_, err := l.js.CreateStream(l.ctx, jetstream.StreamConfig{
		Name: l.name, Subjects: []string{l.name}, Storage: jetstream.MemoryStorage, Duplicates: window,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.js.DeleteStream(context.Background(), l.name)) })
	l.openDatabase()
	return l
}

func (l *lab) openDatabase() {
	ping := func(dsn string) error {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		return db.Ping()
	}
	dsn := inboxtest.Server(l, "INBOX_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable", ping)
	var err error
	l.db, err = sql.Open("pgx", dsn)
	require.NoError(l, err)
	l.effects, l.schema = `"`+l.name+`_effects"`, postgres.Schema{MessagesTable: l.name + "_inbox"}
	_, err = l.db.Exec("CREATE TABLE " + l.effects + " (id TEXT NOT NULL)") // no key: the inbox alone prevents a second row
	require.NoError(l, err)
	l.Cleanup(func() {
		_, err := l.db.Exec("DROP TABLE IF EXISTS " + l.effects + ", " + l.schema.Table())
		require.NoError(l, err)
		l.db.Close()
	})
}

// makeConsumer makes a push consumer for a queue group.
func (l *lab) makeConsumer(config nats.ConsumerConfig) {
	l.Helper()
	js, err := l.connection.JetStream()
	require.NoError(l, err)
	config.Durable, config.DeliverGroup, config.DeliverSubject = l.name, l.name, "deliver."+l.name
	config.AckPolicy = nats.AckExplicitPolicy
	_, err = js.AddConsumer(l.name, &config)
	require.NoError(l, err)
}

func (l *lab) subscriber(change ...func(*wmnats.SubscriberSubscriptionConfig)) *wmnats.Subscriber {
	l.Helper()
	config := wmnats.SubscriberSubscriptionConfig{
		Unmarshaler:      inboxnats.Marshaler{},
		QueueGroupPrefix: l.name,
		SubscribersCount: 2,
		AckWaitTimeout:   30 * time.Second,
		JetStream:        wmnats.JetStreamConfig{DurablePrefix: l.name, SubscribeOptions: []nats.SubOpt{nats.ManualAck()}},
	}
	for _, f := range change {
		f(&config)
	}
	connection, _ := connect(l, l.connection.ConnectedUrl())
	subscriber, err := wmnats.NewSubscriberWithNatsConn(connection, config, watermill.NopLogger{})
	require.NoError(l, err)
	l.Cleanup(func() { _ = subscriber.Close() })
	return subscriber
}

type handler func(msg *message.Message) error

// run starts the service. Its handler writes the effect, and then does what does says.
func (l *lab) run(subscriber message.Subscriber, does handler) {
	l.Helper()
	box, err := inbox.New(wsql.BeginnerFromStdSQL(l.db), inbox.Config{Schema: l.schema, AutoInitializeSchema: true, Observer: l}, nil)
	require.NoError(l, err)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	require.NoError(l, err)
	router.AddMiddleware(box.Middleware)
	router.AddConsumerHandler("service", l.name, subscriber, func(msg *message.Message) error {
		tx, _ := inbox.StdTxFromContext(msg.Context())
		if _, err := tx.ExecContext(msg.Context(), "INSERT INTO "+l.effects+" VALUES ($1)", msg.UUID); err != nil {
			return err
		}
		return does(msg)
	})
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	l.Cleanup(func() { require.NoError(l, router.Close()) })
}

func (l *lab) ObserveDelivery(report inbox.DeliveryReport) { l.reports <- report }

// ended waits for the end of a delivery.
func (l *lab) ended() inbox.DeliveryReport {
	l.Helper()
	return receive(l, l.reports, "the end of a delivery")
}

func receive[T any](l *lab, from <-chan T, what string) (value T) {
	l.Helper()
	select {
	case value = <-from:
	case <-l.ctx.Done():
		l.Fatalf("still waiting for %s", what)
	}
	return value
}

func (l *lab) publish(id, payload string) *jetstream.PubAck {
	l.Helper()
	ack, err := l.js.Publish(l.ctx, l.name, []byte(payload), jetstream.WithMsgID(id))
	require.NoError(l, err)
	return ack
}

// requireRows checks what is durable.
func (l *lab) requireRows(effects, identities int) {
	l.Helper()
	var got [2]int
	require.NoError(l, l.db.QueryRowContext(l.ctx, "SELECT (SELECT COUNT(*) FROM "+l.effects+"), (SELECT COUNT(*) FROM "+l.schema.Table()+")").
		Scan(&got[0], &got[1]))
	require.Equal(l, [2]int{effects, identities}, got, "effects and identities")
}

// awaitConsumer waits until the server says of the consumer what is wanted.
func (l *lab) awaitConsumer(what string, wanted func(*jetstream.ConsumerInfo) bool) {
	l.Helper()
	for {
		consumer, err := l.js.Consumer(l.ctx, l.name, l.name)
		require.NoError(l, err, "still waiting for %s", what)
		if wanted(consumer.CachedInfo()) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (l *lab) awaitAllAcked(last uint64) {
	l.Helper()
	l.awaitConsumer("all acks", func(info *jetstream.ConsumerInfo) bool {
		return info.NumAckPending == 0 && info.AckFloor.Stream == last
	})
}
