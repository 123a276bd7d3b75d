package tests

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"time"

	stdamqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/inboxtest"
)

const (
	orderCount     = 1000
	copiesOfEach   = 3
	publisherCount = 3
	runLimit       = 2 * time.Minute // a run takes 10 s on two cores, several times that on a busy machine
)

// workerKills tell where the first worker is killed with SIGKILL, once in each round of publishing; the last round goes undisturbed.
var workerKills = []string{beforeAck, beforeCommit, beforeAck, anywhere}

const anywhere = ""

// TestRabbitMQ is the mission in one test: orders that RabbitMQ delivers many times, to processes that are killed, take stock once.
func TestRabbitMQ(t *testing.T) {
	for _, name := range []string{"postgres", "mysql", "mariadb"} {
		t.Run(name, func(t *testing.T) {
			broker := inboxtest.Server(t, "INBOX_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672/", pingRabbitMQ)
			newRabbitMQRun(t, name, broker).play()
		})
	}
}

func pingRabbitMQ(address string) error {
	connection, err := stdamqp.Dial(address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// rabbitMQRun is one run with one database.
type rabbitMQRun struct {
	*testing.T
	ctx    context.Context
	config workerConfig
	stock  stockDatabase
	db     *sql.DB
	broker *stdamqp.Channel

	events      chan workerEvent // of all workers
	kinds       map[string]int   // how many
	redelivered int
	killed      int
	unacked     map[string]bool // orders that were committed and not acked when their worker was killed
	recognised  map[string]bool // orders that RabbitMQ delivered again and a worker recognised

	mu       sync.Mutex
	received map[string]string // UUID of the outgoing message: order
}

func newRabbitMQRun(t *testing.T, database, broker string) *rabbitMQRun {
	run := fmt.Sprintf("%s-%d", database, time.Now().UnixNano())
	r := &rabbitMQRun{
		T:        t,
		stock:    stockDatabases[database],
		events:   make(chan workerEvent, 10*orderCount*copiesOfEach), // no worker ever waits for the test
		kinds:    map[string]int{},
		received: map[string]string{},

		unacked:    map[string]bool{},
		recognised: map[string]bool{},
		config: workerConfig{
			Database: database,
			Broker:   broker,
			Topics:   stockTopics{Orders: "orders-" + run, Reserved: "stock-reserved-" + run, Poison: "orders-poison-" + run},
		},
	}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), runLimit)
	t.Cleanup(cancel)
	r.config.DSN, r.db = r.stock.create(t)
	r.makeQueues()
	return r
}

func (r *rabbitMQRun) play() {
	start := time.Now()
	stopRelay := r.startRelay()
	r.startShop()
	steady := r.startWorker(anywhere)
	victim := r.startWorker(workerKills[0])

	rounds := r.deal()
	for i, round := range rounds {
		published := r.publish(round)
		if i < len(workerKills) {
			victim = r.killAndRestart(victim, i)
		}
		require.NoError(r, <-published)
	}
	r.awaitEnd()

	// The workers still run, so a transaction that one of them left open would be seen.
	stopRelay()
	require.Eventually(r, func() bool {
		open, err := r.stock.openTransactions(r.db)
		return err == nil && open == 0
	}, 10*time.Second, 50*time.Millisecond, "a transaction stays open")
	steady.stop()
	victim.stop()
	r.check()
	r.Logf("%.1f s, %d kills, %d orders committed and not acked by then, events %v, %d deliveries marked as redelivered",
		time.Since(start).Seconds(), r.killed, len(r.unacked), r.kinds, r.redelivered)
}

// killAndRestart waits until the worker is where it is to be killed.
func (r *rabbitMQRun) killAndRestart(victim *workerProcess, round int) *workerProcess {
	if workerKills[round] == anywhere {
		r.await("a worker to be at work", func() bool { return victim.ended.Load() >= holdAfter })
	} else {
		r.await("a worker to stand where it is to be killed", func() bool { return victim.held.Load() > 0 })
	}
	require.NoError(r, victim.command.Process.Kill())
	_ = victim.wait()
	r.killed++

	next := anywhere
	if round+1 < len(workerKills) {
		next = workerKills[round+1]
	}
	return r.startWorker(next)
}

// acked is how many deliveries the workers acked. RabbitMQ knows of some acks less, those that a SIGKILL caught in between.
func (r *rabbitMQRun) acked() int { return r.kinds[workerProcessed] + r.kinds[workerDuplicate] }

// awaitEnd returns when the queue is empty and nothing has happened for half a second. RabbitMQ does not show messages that are
// delivered and not acked, so the quiet has to tell that there are none.
func (r *rabbitMQRun) awaitEnd() {
	const quiet = 10
	last, same := -1, 0
	r.await("all messages to be processed", func() bool {
		if r.ready(r.config.Topics.Orders) > 0 || r.acked() < orderCount*copiesOfEach || r.receivedCount() < orderCount || r.acked() != last {
			last, same = r.acked(), 0
			return false
		}
		same++
		return same >= quiet
	})
}

func (r *rabbitMQRun) ready(queue string) int {
	state, err := r.broker.QueueDeclarePassive(queue, true, false, false, false, nil)
	require.NoError(r, err)
	return state.Messages
}

// await counts what the workers tell until done, which it asks every 50 ms.
func (r *rabbitMQRun) await(what string, done func() bool) {
	r.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case event := <-r.events:
			r.count(event)
			continue
		case <-tick.C:
		case <-r.ctx.Done():
			r.Fatalf("still waiting for %s after %s: events %v, %d orders ready, %d outgoing received",
				what, runLimit, r.kinds, r.ready(r.config.Topics.Orders), r.receivedCount())
		}
		if done() {
			return
		}
	}
}

func (r *rabbitMQRun) count(event workerEvent) {
	r.kinds[event.Kind]++
	if event.Redelivered {
		r.redelivered++
	}
	switch {
	case event.Kind == workerHeld && event.Text == beforeAck:
		r.unacked[event.ID] = true
	case event.Kind == workerDuplicate && event.Redelivered:
		r.recognised[event.ID] = true
	case event.Kind == workerFailed:
		r.Logf("a delivery failed: %s", event.Text)
	}
}

// check looks at the database and the broker after all has ended.
func (r *rabbitMQRun) check() {
	for what, query := range map[string]string{
		"stock reserved":                "SELECT SUM(reserved) FROM stock",
		"reservations":                  "SELECT COUNT(*) FROM reservations",
		"orders with a reservation":     "SELECT COUNT(DISTINCT order_id) FROM reservations",
		"identities":                    "SELECT COUNT(*) FROM inbox_messages",
		"rows that the outbox ever had": "SELECT COUNT(*) FROM outbox_ever",
	} {
		require.Equal(r, orderCount*orderQuantity, countRows(r.T, r.db, query), what)
	}
	require.Zero(r, countRows(r.T, r.db, "SELECT COUNT(*) FROM watermill_outbox"), "rows left in the outbox")

	r.mu.Lock()
	defer r.mu.Unlock()
	distinct := map[string]bool{}
	for _, order := range r.received {
		distinct[order] = true
	}
	require.Len(r, r.received, orderCount, "outgoing messages")
	require.Len(r, distinct, orderCount, "orders with an outgoing message")

	for _, topic := range r.topics() {
		require.Zero(r, r.ready(topic), "messages left in %s", topic)
	}

	// The test is worth nothing unless messages did come again.
	require.Equal(r, len(workerKills), r.killed)
	require.GreaterOrEqual(r, r.kinds[workerDuplicate], orderCount*(copiesOfEach-1), "duplicates recognised")
	require.NotEmpty(r, r.unacked)
	for order := range r.unacked {
		require.True(r, r.recognised[order], "%s was committed and not acked before a SIGKILL, and was not recognised when it came again", order)
	}
}
