package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

const (
	shutdowns     = 4
	firstShutdown = 8  // in this run of the handler; each later one comes a run later, so that all kinds of work meet one
	messagesOfT45 = 60 // more than are handled before the last start
)

// shutdown is a way to end a service.
type shutdown struct {
	name string
	end  func(t *testing.T, router *message.Router, cancel context.CancelFunc)
}

var shutdownKinds = []shutdown{
	// Close waits for the handlers.
	{"close", func(t *testing.T, router *message.Router, _ context.CancelFunc) { require.NoError(t, router.Close()) }},
	// As signal.NotifyContext does with the context that Run got.
	{"cancel", func(_ *testing.T, _ *message.Router, cancel context.CancelFunc) { cancel() }},
}

// TestT45 shuts a service of watermill-sql down under load and starts it again, several times. Every message ends once, and none is poisoned.
func TestT45(t *testing.T) {
	forEachSQLPair(t, func(p *sqlPair) {
		for _, kind := range shutdownKinds {
			p.run(kind.name, func(c *sqlCase) { shutDownAndStart(c, kind) })
		}
	})
}

func shutDownAndStart(c *sqlCase, kind shutdown) {
	poison := c.name + "_poison"
	c.makeTopic(poison)
	for n := range messagesOfT45 {
		c.publish(fmt.Sprintf("order-%d", n))
	}
	deliveries := 0
	for n := range shutdowns {
		deliveries += c.serveAndShutDown(kind, poison, int32(firstShutdown+n))
	}
	require.NotZero(c, c.unacked(), "the load ended before the last shutdown")

	last := c.start(sqlServiceOptions{outside: c.recommended(poison)})
	c.untilAllAcked()
	require.NoError(c, last.close())
	require.Equal(c, allOnce(messagesOfT45), c.rows())
	require.Equal(c, messagesOfT45, countRows(c.T, c.db, fmt.Sprintf("SELECT COUNT(DISTINCT id) FROM effects WHERE consumer = '%s'", c.name)))
	require.Zero(c, countRows(c.T, c.queue, "SELECT COUNT(*) FROM "+c.broker.schema.MessagesTable(poison)), "poison messages")
	c.Logf("%d deliveries of %d messages", deliveries+len(last.delivered()), messagesOfT45)
}

// recommended are the middlewares around the inbox.
func (c *sqlCase) recommended(poison string) []message.HandlerMiddleware {
	return []message.HandlerMiddleware{
		c.poisonQueue(poison),
		middleware.Retry{
			MaxRetries:          3,
			InitialInterval:     soon,
			ShouldRetry:         func(params middleware.RetryParams) bool { return inbox.IsRetryable(params.Err) },
			ResetContextOnRetry: true,
		}.Middleware,
		middleware.Recoverer,
	}
}

// serveAndShutDown shuts the service down in the given run of its handler.
func (c *sqlCase) serveAndShutDown(kind shutdown, poison string, run int32) (deliveries int) {
	c.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	inHandler := make(chan struct{})
	var s *sqlService
	var err error
	s, err = newSQLService(c.config, sqlServiceOptions{outside: c.recommended(poison), during: func(msg *message.Message, tx wsql.Tx) error {
		runs := s.runs.Load()
		if runs == run {
			close(inHandler)
			<-msg.Context().Done() // the shutdown has reached it
		}
		return work(runs, msg, tx)
	}})
	require.NoError(c, err)
	defer func() { require.NoError(c, s.close()) }()
	require.NoError(c, s.run(ctx))
	receiveOf(c, inHandler)
	kind.end(c.T, s.router, cancel)
	return len(s.delivered())
}

// work is what handlers do while they are shut down: some look at their context, some meet its end in a statement, some do not care.
func work(run int32, msg *message.Message, tx wsql.Tx) error {
	const duration = 20 * time.Millisecond
	switch run % 3 {
	case 0:
		select {
		case <-msg.Context().Done():
			return msg.Context().Err()
		case <-time.After(duration):
			return nil
		}
	case 1:
		time.Sleep(duration)
		_, err := tx.ExecContext(msg.Context(), "DELETE FROM effects WHERE consumer = 'nobody'")
		return err
	default:
		time.Sleep(duration)
		return nil
	}
}
