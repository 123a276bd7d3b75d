package tests

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
)

// TestRabbitMQCloseWhileHandling: on Close, watermill-amqp gives a message back to RabbitMQ and ends its context, although its handler
// still runs. Either the handler commits nevertheless and what comes again is a duplicate, or it leaves nothing.
func TestRabbitMQCloseWhileHandling(t *testing.T) {
	for _, test := range []struct {
		name           string
		handlerContext inbox.HandlerContext
		first, second  inbox.Outcome
	}{
		{"Cancellable", inbox.Cancellable, 0, inbox.Processed}, // the statement of the first handler fails
		{"Detached", inbox.Detached, inbox.Processed, inbox.Duplicate},
	} {
		t.Run(test.name, func(t *testing.T) {
			broker := inboxtest.Server(t, "INBOX_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672/", pingRabbitMQ)
			r := newRabbitMQRun(t, "postgres", broker)
			require.NoError(t, r.publisher().Publish(r.config.Topics.Orders, message.NewMessage("order-1", []byte(`{}`))))

			handling, goOn := make(chan struct{}, 2), make(chan struct{})
			first, reports := r.startRouter(test.handlerContext, func() { handling <- struct{}{}; <-goOn })
			receiveFrom(r, handling)
			closed := make(chan error, 1)
			go func() { closed <- first.Close() }()
			r.await("the message to be back in the queue", func() bool { return r.ready(r.config.Topics.Orders) == 1 })
			close(goOn)
			require.Equal(t, test.first, receiveFrom(r, reports).Outcome)
			require.NoError(t, receiveFrom(r, closed))

			second, reports := r.startRouter(test.handlerContext, func() {})
			require.Equal(t, test.second, receiveFrom(r, reports).Outcome)
			require.NoError(t, second.Close())
			require.Equal(t, 1, countRows(t, r.db, "SELECT SUM(reserved) FROM stock"))
			require.Equal(t, 1, countRows(t, r.db, "SELECT COUNT(*) FROM inbox_messages"))
		})
	}
}

// reportsTo is an Observer.
type reportsTo chan inbox.DeliveryReport

func (c reportsTo) ObserveDelivery(report inbox.DeliveryReport) { c <- report }

// startRouter makes a consumer of orders that calls before at the start of each handler.
func (r *rabbitMQRun) startRouter(kind inbox.HandlerContext, before func()) (*message.Router, <-chan inbox.DeliveryReport) {
	pool, closePool, err := r.stock.open(r.config.DSN)
	require.NoError(r, err)
	r.Cleanup(closePool)
	reports := make(reportsTo, 10)
	stockInbox, err := inbox.New(pool, inbox.Config{
		Schema: r.stock.schema, Consumer: "inventory", HandlerContext: kind, Observer: reports, AutoInitializeSchema: true,
	}, nil)
	require.NoError(r, err)

	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, watermill.NopLogger{})
	require.NoError(r, err)
	router.AddMiddleware(stockInbox.Middleware)
	router.AddConsumerHandler("inventory", r.config.Topics.Orders, r.subscriber(), inbox.ConsumeTx(func(msg *message.Message, tx wsql.Tx) error {
		before()
		_, err := tx.ExecContext(msg.Context(), r.stock.take, orderQuantity, 0)
		return err
	}))
	go func() { _ = router.Run(context.Background()) }()
	r.Cleanup(func() { _ = router.Close() })
	return router, reports
}

func receiveFrom[T any](r *rabbitMQRun, c <-chan T) (value T) {
	r.Helper()
	select {
	case value = <-c:
	case <-r.ctx.Done():
		r.Fatalf("nothing came in %s", runLimit)
	}
	return value
}
