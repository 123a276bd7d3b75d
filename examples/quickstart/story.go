package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

const (
	lostAck = "E-42" // the message whose first ack is lost
	failing = "E-43" // the message whose handler fails once
)

// step is a delivery as it should go.
type step struct {
	publish bool // the producer publishes the message first; otherwise the broker delivers it again
	id      string
	outcome string
	answer  string
	after   state
	meaning string
}

var steps = []step{
	{true, lostAck, "processed", ackLost, state{7, 1, 1}, "Counter, identity and outgoing message were committed together. The ack got lost."},
	{false, lostAck, "duplicate", acked, state{7, 1, 1}, "The broker delivers again. The identity is known, so the handler does not run."},
	{true, lostAck, "duplicate", acked, state{7, 1, 1}, "The producer publishes the same message once more. Same identity, same answer."},
	{true, failing, "rolled back", nacked, state{7, 1, 1}, "The handler wrote and then failed. Counter, identity and message went together."},
	{false, failing, "processed", acked, state{8, 2, 2}, "Nothing was left of the failure, so the next delivery counts."},
}

// story knows what should happen, watches what does, and tells it.
type story struct {
	w       io.Writer
	db      *sql.DB
	settled chan delivery

	// report is the inbox's last. It is written before an ack or nack and read after it.
	report *inbox.DeliveryReport

	now state
}

// ObserveDelivery makes the story an inbox.Observer.
func (s *story) ObserveDelivery(report inbox.DeliveryReport) { s.report = &report }

// observe is called after each delivery, while the broker waits.
func (s *story) observe(ctx context.Context, d delivery) {
	switch report := s.report; {
	case report == nil:
		d.outcome = "unprotected"
	case report.Err != nil:
		d.outcome, d.err = "rolled back", report.Err
	default:
		d.outcome = report.Outcome.String()
	}
	s.report = nil

	var err error
	d.after, err = readState(ctx, s.db)
	d.err = errors.Join(d.err, err)

	select {
	case s.settled <- d:
	case <-ctx.Done():
	}
}

// consume goes through the steps.
func (s *story) consume(ctx context.Context, broker message.Publisher) error {
	start, err := readState(ctx, s.db)
	if err != nil {
		return err
	}
	s.printHeader(start)

	for i, want := range steps {
		if want.publish {
			msg := message.NewMessage(want.id, []byte("please make the report of "+want.id))
			if err := broker.Publish(requestedTopic, msg); err != nil {
				return err
			}
		}
		var got delivery
		select {
		case got = <-s.settled:
		case <-ctx.Done():
			return fmt.Errorf("delivery %d did not come: %w", i+1, ctx.Err())
		}
		s.printStep(i+1, got)
		if err := want.check(got); err != nil {
			return fmt.Errorf("delivery %d: %w", i+1, err)
		}
		s.printMeaning(want, got)
		s.now = got.after
	}
	return nil
}

func (want step) check(got delivery) error {
	if got.id == want.id && got.outcome == want.outcome && got.answer == want.answer && got.after == want.after {
		return nil
	}
	err := fmt.Errorf("should be: %s %s, %s, %s; was: %s %s, %s, %s",
		want.id, want.outcome, want.answer, want.after, got.id, got.outcome, got.answer, got.after)
	return errors.Join(err, got.err)
}

// relay waits until as many messages are delivered as the outbox holds, each once.
func (s *story) relay(ctx context.Context, delivered <-chan string) error {
	s.printRelay()
	seen := map[string]bool{}
	for range s.now.outgoing {
		select {
		case payload := <-delivered:
			s.printDelivered(payload)
			if seen[payload] {
				return fmt.Errorf("the relay delivered twice: %s", payload)
			}
			seen[payload] = true
		case <-ctx.Done():
			return fmt.Errorf("the relay did not deliver all: %w", ctx.Err())
		}
	}
	return s.waitForOffset(ctx)
}

// waitForOffset waits until the relay has ticked off all that it delivered. Stopped earlier, it would deliver the same again at
// its next start. Only the database tells, so it is asked.
func (s *story) waitForOffset(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var left int
		row := s.db.QueryRowContext(ctx, `SELECT COUNT(*) FROM watermill_outbox
			WHERE "offset" > (SELECT offset_acked FROM watermill_offsets_outbox)`)
		if err := row.Scan(&left); err != nil || left == 0 {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the relay did not tick off %d messages: %w", left, ctx.Err())
		}
	}
}

// conclude is called when no more can be delivered.
func (s *story) conclude(delivered <-chan string) error {
	for payload := range delivered {
		return fmt.Errorf("the relay delivered more than the outbox holds: %s", payload)
	}
	s.printConclusion()
	return nil
}

// state is what the database holds.
type state struct {
	counter, identities, outgoing int
}

func (s state) String() string {
	return fmt.Sprintf("counter %d, inbox rows %d, outgoing messages %d", s.counter, s.identities, s.outgoing)
}

func readState(ctx context.Context, db *sql.DB) (s state, err error) {
	row := db.QueryRowContext(ctx, `SELECT
		(SELECT counter FROM reports),
		(SELECT COUNT(*) FROM inbox_messages),
		(SELECT COUNT(*) FROM watermill_outbox)`)
	return s, row.Scan(&s.counter, &s.identities, &s.outgoing)
}
