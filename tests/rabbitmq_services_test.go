package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	stdamqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

// makeQueues makes them before anything is published: RabbitMQ confirms, and drops, what has no queue.
func (r *rabbitMQRun) makeQueues() {
	connection, err := stdamqp.Dial(r.config.Broker)
	require.NoError(r, err)
	r.Cleanup(func() { _ = connection.Close() })
	r.broker, err = connection.Channel()
	require.NoError(r, err)
	for _, topic := range r.topics() {
		r.Cleanup(func() {
			_, queueErr := r.broker.QueueDelete(topic, false, false, false)
			require.NoError(r, queueErr)
			require.NoError(r, r.broker.ExchangeDelete(topic, false, false))
		})
	}

	subscriber := r.subscriber()
	for _, topic := range r.topics() {
		require.NoError(r, subscriber.SubscribeInitialize(topic))
	}
}

func (r *rabbitMQRun) topics() []string {
	return []string{r.config.Topics.Orders, r.config.Topics.Reserved, r.config.Topics.Poison}
}

func (r *rabbitMQRun) subscriber() *amqp.Subscriber {
	subscriber, err := amqp.NewSubscriber(r.config.amqp(), watermill.NopLogger{})
	require.NoError(r, err)
	r.Cleanup(func() { _ = subscriber.Close() })
	return subscriber
}

func (r *rabbitMQRun) publisher() *amqp.Publisher {
	publisher, err := amqp.NewPublisher(r.config.amqp(), watermill.NopLogger{})
	require.NoError(r, err)
	r.Cleanup(func() { _ = publisher.Close() })
	return publisher
}

// startRelay carries the outbox to RabbitMQ.
func (r *rabbitMQRun) startRelay() (stop func()) {
	pool, closePool, err := r.stock.open(r.config.DSN)
	require.NoError(r, err)
	r.Cleanup(closePool)
	outbox, err := wsql.NewSubscriber(pool, wsql.SubscriberConfig{
		SchemaAdapter:  r.stock.outbox,
		OffsetsAdapter: r.stock.offsets,
		PollInterval:   50 * time.Millisecond,
	}, watermill.NopLogger{})
	require.NoError(r, err)
	require.NoError(r, outbox.SubscribeInitialize(outboxTopic))
	for _, statement := range r.stock.logOutbox {
		_, err := r.db.Exec(statement)
		require.NoError(r, err)
	}

	relay, err := forwarder.NewForwarder(outbox, r.publisher(), watermill.NopLogger{}, forwarder.Config{ForwarderTopic: outboxTopic})
	require.NoError(r, err)
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(context.Background()) }()
	stop = sync.OnceFunc(func() {
		require.NoError(r, relay.Close())
		require.NoError(r, <-ended)
	})
	r.Cleanup(stop)
	return stop
}

// startShop receives what comes out in the end.
func (r *rabbitMQRun) startShop() {
	messages, err := r.subscriber().Subscribe(context.Background(), r.config.Topics.Reserved)
	require.NoError(r, err)
	go func() {
		for msg := range messages {
			r.mu.Lock()
			r.received[msg.UUID] = msg.Metadata.Get("order_id")
			r.mu.Unlock()
			msg.Ack()
		}
	}()
}

func (r *rabbitMQRun) receivedCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.received)
}

// deal shuffles all copies of all orders into rounds.
func (r *rabbitMQRun) deal() [][]*message.Message {
	var all []*message.Message
	for i := range orderCount {
		for range copiesOfEach {
			all = append(all, message.NewMessage(fmt.Sprintf("order-%d", i), []byte(fmt.Sprintf(`{"order": %d}`, i))))
		}
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	rounds := make([][]*message.Message, len(workerKills)+1)
	for i, msg := range all {
		rounds[i%len(rounds)] = append(rounds[i%len(rounds)], msg)
	}
	return rounds
}

func (r *rabbitMQRun) publish(round []*message.Message) (done <-chan error) {
	work := make(chan *message.Message, len(round))
	for _, msg := range round {
		work <- msg
	}
	close(work)

	ended := make(chan error, publisherCount)
	for range publisherCount {
		publisher := r.publisher()
		go func() {
			var err error
			for msg := range work {
				if err == nil {
					err = publisher.Publish(r.config.Topics.Orders, msg)
				}
			}
			ended <- err
		}()
	}
	all := make(chan error, 1)
	go func() {
		var first error
		for range publisherCount {
			if err := <-ended; first == nil {
				first = err
			}
		}
		all <- first
	}()
	return all
}
