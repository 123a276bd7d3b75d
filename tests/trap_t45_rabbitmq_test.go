package tests

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/inboxtest"
)

const (
	shutdownOrders  = 1000
	ordersPerServer = 50 // deliveries, then the service is shut down
)

// TestT45RabbitMQ is TestT45 with many handlers at work when the service is shut down, and with RabbitMQ, which delivers at once to the next instance
// what the last one has not acked.
func TestT45RabbitMQ(t *testing.T) {
	for _, database := range []string{"postgres", "mysql", "mariadb"} {
		for _, kind := range shutdownKinds {
			t.Run(database+"/"+kind.name, func(t *testing.T) {
				broker := inboxtest.Server(t, "INBOX_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672/", pingRabbitMQ)
				newRabbitMQRun(t, database, broker).shutDownAndStart(kind)
			})
		}
	}
}

func (r *rabbitMQRun) shutDownAndStart(kind shutdown) {
	stopRelay := r.startRelay()
	r.startShop()
	publisher := r.publisher()
	for n := range shutdownOrders {
		id := fmt.Sprintf("order-%d", n)
		require.NoError(r, publisher.Publish(r.config.Topics.Orders, message.NewMessage(id, []byte(`{}`))))
	}
	for range shutdowns {
		server := r.serve()
		r.await("the service to be at work", func() bool { return server.handled.Load() >= ordersPerServer })
		server.shutDown(kind)
	}
	require.Less(r, countRows(r.T, r.db, "SELECT COUNT(*) FROM inbox_messages"), shutdownOrders, "the load ended before the last shutdown")

	last := r.serve()
	r.await("all orders", func() bool {
		return countRows(r.T, r.db, "SELECT COUNT(*) FROM inbox_messages") == shutdownOrders && r.ready(r.config.Topics.Orders) == 0 &&
			r.receivedCount() == shutdownOrders
	})
	last.shutDown(shutdownKinds[0])
	stopRelay()
	for query, want := range map[string]int{
		"SELECT SUM(reserved) FROM stock":                   shutdownOrders * orderQuantity,
		"SELECT COUNT(*) FROM reservations":                 shutdownOrders,
		"SELECT COUNT(DISTINCT order_id) FROM reservations": shutdownOrders,
		"SELECT COUNT(*) FROM inbox_messages":               shutdownOrders,
		"SELECT COUNT(*) FROM outbox_ever":                  shutdownOrders,
		"SELECT COUNT(*) FROM watermill_outbox":             0,
	} {
		require.Equal(r, want, countRows(r.T, r.db, query), query)
	}
	for _, topic := range r.topics() {
		require.Zero(r, r.ready(topic), "messages left in %s", topic)
	}
	r.Logf("events %v, %d deliveries marked as redelivered", r.kinds, r.redelivered)
}

// shutdownServer is a worker in the test's process.
type shutdownServer struct {
	run     *rabbitMQRun
	router  *message.Router
	cancel  context.CancelFunc
	ended   chan error
	handled atomic.Int32 // deliveries
}

func (r *rabbitMQRun) serve() *shutdownServer {
	pool, closePool, err := r.stock.open(r.config.DSN)
	require.NoError(r, err)
	r.Cleanup(closePool)
	s := &shutdownServer{run: r, ended: make(chan error, 1)}
	w := &worker{workerConfig: r.config, logger: watermill.NopLogger{}, tells: func(event workerEvent) {
		s.handled.Add(1)
		r.events <- event
	}}
	s.router, err = w.router(pool, r.stock)
	require.NoError(r, err)
	ctx, cancel := context.WithCancel(context.Background())
	r.Cleanup(cancel)
	s.cancel = cancel
	go func() { s.ended <- s.router.Run(ctx) }()
	<-s.router.Running()
	return s
}

func (s *shutdownServer) shutDown(kind shutdown) {
	s.run.Helper()
	kind.end(s.run.T, s.router, s.cancel)
	require.NoError(s.run, receiveFrom(s.run, s.ended))
}
