package brokertest

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// caseLimit bounds all waits of one case. The slowest brokers need many seconds to notice that a consumer is dead.
const caseLimit = 2 * time.Minute

// Run runs all cases.
func Run(t *testing.T, broker Broker) {
	if broker.Identity == nil {
		broker.Identity = inbox.MessageUUID
	}
	r := run{broker: broker, address: broker.Address(t)}
	r.dsn, r.db = createDatabase(t)

	for _, from := range []producer{watermillProducer, rawProducer} {
		t.Run("Nacked/"+from.name, r.test(func(c *testCase) { nacked(c, from) }))
		t.Run("KilledBeforeAck/"+from.name, r.test(func(c *testCase) { killedBeforeAck(c, from) }))
		t.Run("KilledBeforeCommit/"+from.name, r.test(func(c *testCase) { killedBeforeCommit(c, from) }))
		t.Run("AckDeadline/"+from.name, r.test(func(c *testCase) { ackDeadline(c, from) }))
	}
	t.Run("WithoutID", r.test(withoutID))
	t.Run("WithoutID/Poison", r.test(withoutIDPoison))
	t.Run("ManyIDs", r.test(manyIDs))
}

// run is what the cases of one Run share.
type run struct {
	broker  Broker
	address string
	dsn     string
	db      *sql.DB
}

// testCase is one case, over a topic and a group of its own.
type testCase struct {
	*testing.T
	run
	ctx           context.Context
	topic, poison string
	group         string // also the inbox's consumer
	events        *eventLog
	publisher     message.Publisher
	processes     []*process
}

var (
	caseNumber  atomic.Int64
	notForNames = regexp.MustCompile(`[^A-Za-z0-9]+`)
)

func (r run) test(run func(c *testCase)) func(*testing.T) {
	return func(t *testing.T) {
		t.Parallel() // most of the time is waiting
		name := strings.Trim(notForNames.ReplaceAllString(t.Name(), "-"), "-")
		unique := fmt.Sprintf("%s-%d-%d", name, time.Now().UnixNano(), caseNumber.Add(1))
		c := &testCase{
			T: t, run: r, topic: unique, poison: unique + "-poison", group: "group-" + unique, events: newEventLog(),
		}
		var cancel context.CancelFunc
		c.ctx, cancel = context.WithTimeout(context.Background(), caseLimit)
		t.Cleanup(cancel)

		if r.broker.Prepare != nil {
			r.broker.Prepare(t, r.address, c.topic)
			r.broker.Prepare(t, r.address, c.poison)
		}
		var err error
		c.publisher, err = r.broker.Publisher(r.address, watermill.NopLogger{})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.publisher.Close() })
		run(c)
	}
}

// producer is who publishes the messages of a case.
type producer struct {
	name    string
	publish func(c *testCase, id string)
}

var watermillProducer = producer{"Watermill", func(c *testCase, id string) {
	require.NoError(c, c.publisher.Publish(c.topic, message.NewMessage(id, payloadOf(id))))
}}

var rawProducer = producer{"Raw", func(c *testCase, id string) {
	c.broker.PublishRaw(c, c.address, c.topic, id, payloadOf(id))
}}

func payloadOf(id string) []byte { return []byte(fmt.Sprintf(`{"order": %q}`, id)) }

// publishOne returns the id.
func (c *testCase) publishOne(from producer) string {
	id := strings.ToLower(from.name) + "-" + watermill.NewShortUUID()
	from.publish(c, id)
	return id
}
