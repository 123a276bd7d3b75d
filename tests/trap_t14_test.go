package tests

import (
	"context"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// ackDeadline is long enough for a duplicate on a busy machine.
const ackDeadline = time.Second

// TestT14 has handlers that outlast the ack deadline of watermill-sql's subscriber, mostly on the same database and the same pool. At the deadline the
// subscriber commits its own transaction and delivers the message again while the first handler still runs.
func TestT14(t *testing.T) {
	forEachSQLPair(t, func(p *sqlPair) {
		p.run("ignores_its_context", func(c *sqlCase) { outlastDeadline(c, inbox.Cancellable, context.WithoutCancel, 1) })
		p.run("detached", func(c *sqlCase) { outlastDeadline(c, inbox.Detached, nil, 1) })
		p.run("looks_at_its_context", func(c *sqlCase) { outlastDeadline(c, inbox.Cancellable, nil, 2) })
	})
}

// outlastDeadline lets the first run of the handler go on when the message has come again. Then it writes with what look makes of its context.
func outlastDeadline(c *sqlCase, kind inbox.HandlerContext, look func(context.Context) context.Context, runs int32) {
	c.config.AckDeadline = ackDeadline
	c.publish("order-1")
	reports := make(reportsTo, 1000)
	written, goOn := make(chan struct{}, 10), make(chan struct{})
	s := c.start(sqlServiceOptions{
		inbox: inbox.Config{HandlerContext: kind, Observer: reports, WaitTimeout: sqlCaseLimit},
		during: func(msg *message.Message, tx wsql.Tx) error {
			written <- struct{}{}
			<-goOn
			ctx := msg.Context()
			if look != nil {
				ctx = look(ctx)
			}
			_, err := tx.ExecContext(ctx, "DELETE FROM effects WHERE consumer = 'nobody'")
			return err
		},
	})
	receiveOf(c, written)
	c.until("the message to come again", func() bool {
		if c.config.Broker == "sqlite" { // its subscriber waits for the only writer, and delivers when the handler has returned
			return s.firstContext().Err() != nil
		}
		return len(s.delivered()) > 1
	})
	require.Equal(c, sqlRows{}, c.rows(), "committed with the subscriber's transaction")
	close(goOn)
	c.untilAllAcked()
	require.NoError(c, s.close())

	for _, id := range s.delivered() {
		require.Equal(c, "order-1", id)
	}
	require.Equal(c, runs, s.runs.Load(), "runs of the handler")
	c.requireOnce("order-1")
	for range len(reports) {
		require.Zero(c, (<-reports).Conflicts, "deadlocks")
	}
}

func receiveOf[T any](c *sqlCase, from <-chan T) (value T) {
	c.Helper()
	select {
	case value = <-from:
	case <-time.After(sqlCaseLimit):
		c.Fatalf("nothing came in %s", sqlCaseLimit)
	}
	return value
}
