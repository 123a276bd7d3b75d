package deferred

import (
	"context"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// recheckWaiting is how often a message that waits for its ordering key is looked at although nothing told that its turn has come: the worker that
// should have told disappeared, or someone deleted the message before it by hand.
func (s *subscription) recheckWaiting() time.Duration { return s.config.Lease }

// claim takes up to limit messages of a state. It reports how many, and whether there may be more. A transaction that has begun goes on after the
// end of the subscription: a COMMIT that is interrupted may happen nevertheless, and its messages would be with nobody until the end of their lease.
func (s *subscription) claim(state State, limit int) (claimed int, more bool, err error) {
	var (
		claims []*claim
		buried int
		sent   time.Time
	)
	err = s.queue.retryConflicts(s.ctx, func() error {
		token := newToken()
		sent, claims, buried, more = time.Now(), nil, 0, false
		err := s.queue.once(context.WithoutCancel(s.ctx), func(ctx context.Context, tx wsql.Tx) (err error) {
			claims, buried, more, err = s.claimIn(ctx, tx, state, limit, token)
			return err
		})
		if err != nil && len(claims) > 0 {
			s.doubtful = append(s.doubtful, token) // perhaps committed
		}
		return err
	})
	if err != nil {
		return 0, false, err
	}
	if state == StateSuspect && len(claims) == 0 {
		s.noSuspects()
	}
	s.doubtful = nil
	for _, c := range claims {
		c.setLease(sent.Add(s.config.Lease))
		ctx, cancel := context.WithCancel(s.ctx)
		c.cancelMsg = cancel
		c.msg.SetContext(ctx)
		inbox.SetClaim(c.msg, c)
	}
	s.observe(Claimed, len(claims)) // before they are served, so that what becomes of them is told afterwards
	s.observe(Died, buried)
	s.add(claims, state == StateSuspect && len(claims) > 0)
	return len(claims), more, nil
}

func (s *subscription) noSuspects() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspectDue = false
}

func (s *subscription) claimIn(ctx context.Context, tx wsql.Tx, state State, limit int, token int64) (claims []*claim, buried int, more bool, err error) {
	before := []wsql.Query{s.queue.ClaimFirst(s.config.Queue)}
	for _, doubtful := range s.doubtful {
		before = append(before, s.queue.undo(s.config.Consumer, s.topic, doubtful))
	}
	if err := run(ctx, tx, before...); err != nil {
		return nil, 0, false, err
	}
	found, err := s.readDue(ctx, tx, state, limit, token)
	if err != nil || len(found) == 0 {
		return nil, 0, false, err
	}
	behind, err := s.behind(ctx, tx, found)
	if err != nil {
		return nil, 0, false, err
	}

	var claimed, unreadable []int64
	for _, c := range found {
		switch {
		case slices.Contains(behind, c.seq):
		case c.msg == nil:
			unreadable = append(unreadable, c.seq)
		default:
			claims, claimed = append(claims, c), append(claimed, c.seq)
		}
	}
	err = run(ctx, tx,
		s.queue.bury(unreadable, reasonUnreadable),
		s.queue.move(behind, StateWaiting, s.recheckWaiting()),
		s.queue.statements.claim(claimed, token, s.config.Lease),
	)
	return claims, len(unreadable), len(found) == limit, err
}

// readDue locks and reads messages. One that cannot be read is kept out of the way of the others.
func (s *subscription) readDue(ctx context.Context, tx wsql.Tx, state State, limit int, token int64) ([]*claim, error) {
	var found []*claim
	err := sqltx.Each(ctx, tx, s.queue.due(s.config.Consumer, s.topic, state, limit), func(scan func(...any) error) error {
		var (
			c                                                       = &claim{subscription: s, token: token}
			producer, id, fingerprint, key, uuid, metadata, payload []byte
		)
		err := scan(&c.seq, &producer, &id, &fingerprint, &key, &uuid, &metadata, &payload, &c.attempts)
		if err != nil {
			return err
		}
		c.attempts++
		c.orderingKey = string(key)
		c.row = inbox.Row{Consumer: s.config.Consumer, Producer: string(producer), ID: string(id), Fingerprint: string(fingerprint)}
		if c.msg, err = messageOf(c.row.ID, uuid, metadata, payload); err != nil {
			s.logger.Error("Stored message cannot be read and is dead", err, s.fields.Add(watermill.LogFields{"message_id": c.row.ID}))
		}
		found = append(found, c)
		return nil
	})
	return found, err
}

// uuidOf reads the column uuid.
func uuidOf(id string, stored []byte) string {
	if len(stored) == 0 {
		return id
	}
	return string(stored[1:])
}

// messageOf makes the message as it was received.
func messageOf(id string, uuid, metadata, payload []byte) (*message.Message, error) {
	decoded, err := decodeMetadata(metadata)
	if err != nil {
		return nil, err
	}
	msg := message.NewMessage(uuidOf(id, uuid), payload)
	msg.Metadata = decoded
	return msg, nil
}

// behind returns which of the locked messages must wait for another one with their ordering key.
func (s *subscription) behind(ctx context.Context, tx wsql.Tx, found []*claim) ([]int64, error) {
	var seqs []int64
	for _, c := range found {
		if c.orderingKey != "" {
			seqs = append(seqs, c.seq)
		}
	}
	if len(seqs) == 0 {
		return nil, nil
	}
	return readNumbers(ctx, tx, s.queue.behind(seqs, s.config.DeadLetsGo))
}

func readNumbers(ctx context.Context, tx wsql.Tx, query wsql.Query) (numbers []int64, err error) {
	err = sqltx.Each(ctx, tx, query, func(scan func(...any) error) error {
		var number int64
		err := scan(&number)
		numbers = append(numbers, number)
		return err
	})
	return numbers, err
}
