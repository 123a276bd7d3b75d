package redis

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/sqlite"
	"github.com/watermill-inbox/inbox/tests/brokers/brokertest"
)

// lab is one stream with one service that consumes it.
type lab struct {
	*testing.T
	ctx     context.Context
	address string
	client  *redis.Client
	name    string // of stream and group
	db      *sql.DB
	reports chan inbox.DeliveryReport
}

var labNumber atomic.Int64

func newLab(t *testing.T) *lab {
	t.Parallel()
	l := &lab{
		T: t, address: address(t), name: fmt.Sprintf("lab-%d-%d", time.Now().UnixNano(), labNumber.Add(1)),
		reports: make(chan inbox.DeliveryReport, 100),
	}
	l.client = newStream(t, l.address, l.name)
	var cancel context.CancelFunc
	l.ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	l.db = brokertest.OpenSQLite(t, "id")
	return l
}

func (l *lab) subscriber(change ...func(*redisstream.SubscriberConfig)) *redisstream.Subscriber {
	l.Helper()
	config := subscriberConfig(l.address, l.name)
	for _, f := range change {
		f(&config)
	}
	subscriber, err := redisstream.NewSubscriber(config, watermill.NopLogger{})
	require.NoError(l, err)
	l.Cleanup(func() { _ = subscriber.Close() })
	return subscriber
}

// run starts the service. Its handler writes the effect, and then does what does says.
func (l *lab) run(subscriber message.Subscriber, does func(msg *message.Message) error) {
	l.Helper()
	box, err := inbox.New(wsql.BeginnerFromStdSQL(l.db), inbox.Config{Schema: sqlite.Schema{}, AutoInitializeSchema: true, Observer: l}, nil)
	require.NoError(l, err)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	require.NoError(l, err)
	router.AddMiddleware(box.Middleware)
	router.AddConsumerHandler("service", l.name, subscriber, inbox.ConsumeStdTx(func(msg *message.Message, tx *sql.Tx) error {
		if _, err := tx.ExecContext(msg.Context(), "INSERT INTO effects VALUES (?)", msg.UUID); err != nil {
			return err
		}
		return does(msg)
	}))
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	l.Cleanup(func() { require.NoError(l, router.Close()) })
}

func (l *lab) ObserveDelivery(report inbox.DeliveryReport) { l.reports <- report }

// requireEnd waits for the end of the next delivery.
func (l *lab) requireEnd(id string, outcome inbox.Outcome) {
	l.Helper()
	report := receive(l, l.reports)
	require.NoError(l, report.Err)
	require.Equal(l, id, report.Identity.ID)
	require.Equal(l, outcome, report.Outcome)
}

func (l *lab) requireEffects(want int) {
	l.Helper()
	var effects int
	require.NoError(l, l.db.QueryRowContext(l.ctx, "SELECT COUNT(*) FROM effects").Scan(&effects))
	require.Equal(l, want, effects)
}

// receive returns nil if the channel is closed.
func receive[T any](l *lab, from <-chan T) (value T) {
	l.Helper()
	select {
	case value = <-from:
	case <-l.ctx.Done():
		l.Fatal("still waiting")
	}
	return value
}

// pending returns how many deliveries of the group nobody has acked.
func (l *lab) pending() int64 {
	l.Helper()
	pending, err := l.client.XPending(l.ctx, l.name, l.name).Result()
	require.NoError(l, err)
	return pending.Count
}

func (l *lab) awaitPending(want int64) {
	l.Helper()
	for l.pending() != want {
		require.NoError(l, l.ctx.Err(), "still waiting")
		time.Sleep(10 * time.Millisecond)
	}
}

// deliveries returns how often each message has been delivered that nobody has acked.
func (l *lab) deliveries() ([]redis.XPendingExt, error) {
	return l.client.XPendingExt(l.ctx, &redis.XPendingExtArgs{Stream: l.name, Group: l.name, Start: "-", End: "+", Count: 10}).Result()
}
