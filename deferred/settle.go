package deferred

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// Reasons of dead messages.
const (
	reasonExhausted  = "attempts exhausted"
	reasonCrashed    = "attempts exhausted: the worker disappeared while it held the message"
	reasonUnreadable = "the stored row cannot be read"
	reasonRefused    = "the message itself is at fault"
)

// settle does with the row what the handler's end means. A message that an Inbox committed has none any more.
func (s *subscription) settle(c *claim) {
	completed, lost, err := c.outcome()
	switch {
	case completed:
		s.observe(Completed, 1)
		s.promoteNext(c.orderingKey)
		return
	case lost:
		s.logger.Info("A message was handled after its lease was lost", c.fields())
		return
	}
	select {
	case <-c.msg.Acked():
		if err == nil || !c.ackedEarly() {
			s.change(c, Completed, "remove", s.queue.remove(c))
			s.promoteNext(c.orderingKey)
			return
		}
		// It was acked before it was handled, and then it failed. The queue still has it.
	default:
	}
	s.fail(c, err)
}

// fail stores when the message is tried again, or that it is not.
func (s *subscription) fail(c *claim, err error) {
	lastError := "nacked without a recorded error"
	if err != nil {
		lastError = err.Error()
	}
	lastError = printable(lastError, maxErrorLength)
	if errors.Is(err, inbox.ErrClaimLost) { // the Inbox noticed before a renewal could, and there is nothing to release
		s.observe(LeaseLost, 1)
	}
	switch {
	case inbox.IsPoison(err) && !inbox.IsRetryable(err):
		s.kill(c, reasonRefused, lastError)
	case s.ctx.Err() != nil || s.isInnocent(err):
		s.change(c, GivenBack, "release", s.queue.release(c, -1, s.config.backoff(max(1, c.attempts-1)), lastError))
	case s.config.MaxAttempts > 0 && c.attempts >= s.config.MaxAttempts:
		s.kill(c, reasonExhausted, lastError)
	default:
		wait := s.config.backoff(c.attempts)
		s.change(c, Retried, "release", s.queue.release(c, 0, wait, lastError))
		s.logger.Debug("Deferred message failed and is tried again", c.fields().Add(watermill.LogFields{"err": lastError, "wait": wait.String()}))
	}
}

func (s *subscription) kill(c *claim, reason, lastError string) {
	s.logger.Error("Deferred message is dead: redrive or discard it", errors.New(lastError), c.fields().Add(watermill.LogFields{"reason": reason}))
	s.change(c, Died, "kill", s.queue.kill(c, reason, lastError))
	if s.config.DeadLetsGo {
		s.promoteNext(c.orderingKey)
	}
}

// isInnocent tells errors for which neither the message nor its handler is the cause, so that the attempt does not count: conflicts, a database that
// does not do its work, and what fails before the handler runs. What the outbox or COMMIT refuse counts, because it may be refused for ever.
func (s *subscription) isInnocent(err error) bool {
	if inbox.IsConflict(err) || errors.Is(err, inbox.ErrInFlight) {
		return true
	}
	var failed *inbox.Error
	if !errors.As(err, &failed) || inbox.IsPoison(err) {
		return false
	}
	switch failed.Stage {
	case inbox.StageHandler, inbox.StageIdentity:
		return false
	case inbox.StageBegin, inbox.StageInsert, inbox.StageCompare:
		return true
	default:
		return s.queue.Classify(err) == inbox.ClassUnavailable || errors.Is(err, context.DeadlineExceeded)
	}
}

// giveBack makes a message available that was claimed and is not handled here.
func (s *subscription) giveBack(c *claim) {
	if completed, lost, _ := c.outcome(); completed || lost {
		return
	}
	s.change(c, GivenBack, "give back", s.queue.release(c, -1, 0, ""))
}

// change changes the row of a claim, and tries that again until the lease is over: then the message is claimed again anyway.
func (s *subscription) change(c *claim, event Event, what string, query wsql.Query) {
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Lease)
	defer cancel()
	var affected int64
	err := s.queue.retryConflicts(ctx, func() (err error) {
		affected, err = s.queue.exec(ctx, query)
		return err
	})
	switch {
	case err != nil:
		s.logger.Error(fmt.Sprintf("Deferred subscriber cannot %s a message: it is tried again after its lease", what), err, c.fields())
	case affected == 0:
		// Lost, or done by a transaction whose COMMIT got no answer.
		s.logger.Debug(fmt.Sprintf("Nothing to %s: the claim is over", what), c.fields())
	default:
		s.observe(event, 1)
	}
}

// promoteNext makes the next message of an ordering key available. It is a transaction of its own, after the end of the one before: in that
// transaction, at a higher isolation level, it might not see the next message. If it fails, a sweep does it later.
func (s *subscription) promoteNext(orderingKey string) {
	if orderingKey == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Lease)
	defer cancel()
	err := s.queue.retryConflicts(ctx, func() error {
		return s.queue.once(ctx, func(ctx context.Context, tx wsql.Tx) error {
			return s.queue.promoteFirst(ctx, tx, s.config.Consumer, s.topic, orderingKey, s.config.DeadLetsGo)
		})
	})
	if err != nil {
		s.logger.Error("Deferred subscriber cannot make the next message of an ordering key available: a sweep will do it", err, s.fields)
		return
	}
	s.lookAgain()
}

func (t *table) promoteFirst(ctx context.Context, tx wsql.Tx, consumer, topic, orderingKey string, deadLetsGo bool) error {
	var first sql.NullInt64
	if _, err := sqltx.QueryRow(ctx, tx, t.first(consumer, topic, orderingKey, deadLetsGo), &first); err != nil || !first.Valid {
		return err
	}
	return run(ctx, tx, t.promote(first.Int64))
}

func (c *claim) fields() watermill.LogFields {
	return c.subscription.fields.Add(watermill.LogFields{
		"producer": c.row.Producer, "message_id": c.row.ID, "message_uuid": c.msg.UUID, "attempts": c.attempts,
	})
}

const maxErrorLength = 2000

// printable makes any text valid for every column and terminal: UTF-8 without control characters, cut at a rune.
func printable(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
	if len(s) <= most {
		return s
	}
	cut := most - len("…")
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
