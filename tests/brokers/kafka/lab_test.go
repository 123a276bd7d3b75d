package kafka

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wmkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/sqlite"
	"github.com/watermill-inbox/inbox/tests/brokers/brokertest"
)

// lab is one topic with one service that consumes it.
type lab struct {
	*testing.T
	ctx      context.Context
	address  string
	producer *kgo.Client
	admin    sarama.ClusterAdmin
	name     string // of topic and group
	identity inbox.IdentityFunc
	db       *sql.DB
	reports  chan inbox.DeliveryReport
}

var (
	labNumber atomic.Int64
	manual    = kgo.RecordPartitioner(kgo.ManualPartitioner())
)

func newLab(t *testing.T, address string) *lab {
	t.Parallel()
	l := &lab{
		T: t, address: address, name: fmt.Sprintf("lab-%d-%d", time.Now().UnixNano(), labNumber.Add(1)),
		identity: inbox.MessageUUID, reports: make(chan inbox.DeliveryReport, 1000),
	}
	makeTopic(t, l.address, l.name, partitions)
	l.producer = connect(t, l.address, manual)
	var err error
	l.admin, err = sarama.NewClusterAdmin([]string{l.address}, wmkafka.DefaultSaramaSubscriberConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.admin.Close() })
	var cancel context.CancelFunc
	l.ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	l.db = brokertest.OpenSQLite(t, "payload")
	return l
}

func (l *lab) subscriber(change ...func(*wmkafka.SubscriberConfig)) *wmkafka.Subscriber {
	l.Helper()
	config := subscriberConfig(l.address, l.name)
	for _, f := range change {
		f(&config)
	}
	subscriber, err := wmkafka.NewSubscriber(config, watermill.NopLogger{})
	require.NoError(l, err)
	l.Cleanup(func() { _ = subscriber.Close() })
	return subscriber
}

// run starts the service. Its handler writes the effect, and then does what does says.
func (l *lab) run(subscriber message.Subscriber, does func(msg *message.Message) error) (stop func()) {
	l.Helper()
	box, err := inbox.New(wsql.BeginnerFromStdSQL(l.db), inbox.Config{
		Schema: sqlite.Schema{}, Identity: l.identity, AutoInitializeSchema: true, Observer: l,
	}, nil)
	require.NoError(l, err)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	require.NoError(l, err)
	router.AddMiddleware(box.Middleware)
	router.AddConsumerHandler("service", l.name, subscriber, inbox.ConsumeStdTx(func(msg *message.Message, tx *sql.Tx) error {
		if _, err := tx.ExecContext(msg.Context(), "INSERT INTO effects VALUES (?)", string(msg.Payload)); err != nil {
			return err
		}
		return does(msg)
	}))
	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	stop = func() { require.NoError(l, router.Close()) }
	l.Cleanup(stop)
	return stop
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

func (l *lab) requireEffects(want ...string) {
	l.Helper()
	rows, err := l.db.QueryContext(l.ctx, "SELECT payload FROM effects ORDER BY rowid")
	require.NoError(l, err)
	defer rows.Close()
	var got []string
	for rows.Next() {
		var payload string
		require.NoError(l, rows.Scan(&payload))
		got = append(got, payload)
	}
	require.NoError(l, rows.Err())
	require.Equal(l, want, got)
}

func receive[T any](l *lab, from <-chan T) (value T) {
	l.Helper()
	select {
	case value = <-from:
	case <-l.ctx.Done():
		l.Fatal("still waiting")
	}
	return value
}

// produce returns the record's offset. A record without id has no headers.
func (l *lab) produce(partition int32, id, payload string) int64 {
	l.Helper()
	record := &kgo.Record{Topic: l.name, Partition: partition, Key: []byte("key"), Value: []byte(payload)}
	if id != "" {
		record.Headers = []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}
	}
	produce(l, l.producer, record)
	return record.Offset
}

// committed returns the offset at which the group goes on after a restart, or -1.
func (l *lab) committed(partition int32) int64 {
	l.Helper()
	response, err := l.admin.ListConsumerGroupOffsets(l.name, map[string][]int32{l.name: {partition}})
	require.NoError(l, err)
	block := response.GetBlock(l.name, partition)
	require.NotNil(l, block)
	return block.Offset
}

func (l *lab) awaitCommitted(partition int32, want int64) {
	l.Helper()
	for l.committed(partition) != want {
		require.NoError(l, l.ctx.Err(), "still waiting")
		time.Sleep(10 * time.Millisecond)
	}
}
