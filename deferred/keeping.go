package deferred

import (
	"context"
	"slices"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// keep renews the leases of this process, and sweeps what others left behind, until ctx ends. It works on a connection of its own.
func (s *subscription) keep(ctx context.Context) {
	k := &keeper{subscription: s}
	defer k.drop()
	if s.queue.OneWriter() {
		k.queue, k.release = s.queue, func() {} // a second connection would only wait for the first
	}
	interval := s.config.Lease / 3
	ticker := time.NewTicker(max(interval/4, time.Millisecond))
	defer ticker.Stop()

	var renewed, swept time.Time
	for {
		now := time.Now()
		if now.Sub(renewed) >= interval && k.renew(ctx) {
			renewed = now
		}
		s.loseExpired()
		if now.Sub(swept) >= interval && s.ctx.Err() == nil {
			k.sweep(ctx)
			swept = now
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// keeper owns the connection.
type keeper struct {
	*subscription
	queue   *table // nil: none at present
	release func()
}

// connect takes a connection out of the pool, at the first time before handlers can use them all.
func (k *keeper) connect(ctx context.Context) error {
	if k.queue != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.config.Timeout)
	defer cancel()
	db, release, err := reserve(ctx, k.db)
	if err != nil {
		return err
	}
	k.queue, k.release = k.subscription.queue.on(db), release
	return nil
}

func (k *keeper) drop() {
	if k.queue != nil {
		k.release()
		k.queue = nil
	}
}

// failed drops the connection, which may be broken.
func (k *keeper) failed(what string, err error) {
	k.logger.Info("Deferred subscriber cannot "+what+", it tries again", k.fields.Add(map[string]any{"err": err.Error()}))
	if !k.subscription.queue.OneWriter() {
		k.drop()
	}
}

// renew makes the leases of all claims longer. It reports false if it must be tried again soon.
func (k *keeper) renew(ctx context.Context) bool {
	claims := k.renewable()
	if err := k.connect(ctx); err != nil {
		k.failed("get a connection for leases", err)
		return false
	}
	if len(claims) == 0 {
		return true
	}
	sent := time.Now()
	held, err := k.renewNow(ctx, claims)
	if err != nil {
		if ctx.Err() == nil {
			k.failed("renew leases", err)
		}
		return false
	}
	again := false
	for _, c := range claims {
		switch {
		case held[[2]int64{c.seq, c.token}]:
			c.setLease(sent.Add(k.config.Lease))
		case c.isHeld() && c.missedFirst():
			again = true // probably its transaction was committed just now
		default:
			k.loseUnlessSettled(c)
		}
	}
	return !again
}

// renewable returns the claims that may need their lease. On an engine with one writer, one whose transaction is open needs none: nobody can
// claim the message meanwhile, nor could the lease be renewed.
func (s *subscription) renewable() []*claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	claims := make([]*claim, 0, len(s.claims))
	for c := range s.claims {
		if s.queue.OneWriter() && c.isHeld() {
			continue
		}
		claims = append(claims, c)
	}
	return claims
}

// renewNow returns which claims are still held.
func (k *keeper) renewNow(ctx context.Context, claims []*claim) (map[[2]int64]bool, error) {
	held := make(map[[2]int64]bool, len(claims))
	err := k.queue.once(ctx, func(ctx context.Context, tx wsql.Tx) error {
		clear(held)
		query := k.queue.statements.renew(claims, k.config.Lease)
		result, err := tx.ExecContext(ctx, query.Query, query.Args...)
		if err != nil {
			return err
		}
		affected, err := result.RowsAffected()
		if err != nil {
			return err
		}
		if affected == int64(len(claims)) {
			for _, c := range claims {
				held[[2]int64{c.seq, c.token}] = true
			}
			return nil
		}
		return k.readHeld(ctx, tx, claims, held)
	})
	return held, err
}

func (k *keeper) readHeld(ctx context.Context, tx wsql.Tx, claims []*claim, held map[[2]int64]bool) error {
	return sqltx.Each(ctx, tx, k.queue.held(claims), func(scan func(...any) error) error {
		var pair [2]int64
		err := scan(&pair[0], &pair[1])
		held[pair] = true
		return err
	})
}

// loseUnlessSettled ends a claim whose row is gone, unless it is gone because the message was just processed.
func (s *subscription) loseUnlessSettled(c *claim) {
	s.mu.Lock()
	_, serving := s.claims[c]
	s.mu.Unlock()
	select {
	case <-c.msg.Acked():
		serving = false
	case <-c.msg.Nacked():
		serving = false
	default:
	}
	if completed, lost, _ := c.outcome(); !serving || completed || lost {
		return
	}
	s.logger.Error("Lease of a message is lost: its handler's context ends", nil, s.fieldsOf(c))
	c.lose()
}

// loseExpired ends claims whose leases could not be renewed in time.
func (s *subscription) loseExpired() {
	for _, c := range s.renewable() {
		if c.leaseEnded(time.Now()) {
			s.loseUnlessSettled(c)
		}
	}
}

// sweepLimit is how many messages one statement of a sweep moves.
const sweepLimit = 100

// sweep looks for claims of workers that disappeared, for messages that need not wait for their key any more, and for crash suspects.
func (k *keeper) sweep(ctx context.Context) {
	if err := k.connect(ctx); err != nil {
		return // renew has told
	}
	if k.subscription.queue.OneWriter() && len(k.renewable()) < k.count() {
		return // a handler writes
	}
	for {
		moved, err := k.sweepOnce(ctx)
		if err != nil {
			if ctx.Err() == nil {
				k.failed("look for lost claims", err)
			}
			return
		}
		if moved < sweepLimit || ctx.Err() != nil {
			return
		}
	}
}

func (s *subscription) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.claims)
}

// sweepOnce returns the greatest number of messages that one of its statements moved.
func (k *keeper) sweepOnce(ctx context.Context) (moved int, err error) {
	var suspects bool
	err = k.queue.once(ctx, func(ctx context.Context, tx wsql.Tx) error {
		if err := run(ctx, tx, k.queue.ClaimFirst(k.config.Queue)); err != nil {
			return err
		}
		lost, err := k.sweepClaims(ctx, tx)
		if err != nil {
			return err
		}
		waiting, err := k.sweepWaiting(ctx, tx)
		if err != nil {
			return err
		}
		moved = max(lost, waiting)
		suspects, err = sqltx.QueryRow(ctx, tx, k.queue.hasDue(k.config.Consumer, k.topic, StateSuspect))
		return err
	})
	if err == nil && suspects {
		k.mu.Lock()
		k.suspectDue = true
		k.mu.Unlock()
		k.nudge()
		k.lookAgain()
	}
	return moved, err
}

// expiredMessage is what expired returns.
type expiredMessage struct {
	seq         int64
	attempts    int
	orderingKey string
}

// sweepClaims makes suspects of messages whose lease ended without an outcome, or dead ones at the limit.
func (k *keeper) sweepClaims(ctx context.Context, tx wsql.Tx) (int, error) {
	expired, err := k.readExpired(ctx, tx, StateClaimed)
	if err != nil || len(expired) == 0 {
		return 0, err
	}
	var suspects, dead []int64
	var keys []string
	for _, m := range expired {
		if k.config.MaxAttempts < 0 || m.attempts < k.config.MaxAttempts {
			suspects = append(suspects, m.seq)
			continue
		}
		dead = append(dead, m.seq)
		if m.orderingKey != "" && k.config.DeadLetsGo {
			keys = append(keys, m.orderingKey)
		}
	}
	if len(dead) > 0 {
		k.logger.Error("Deferred messages are dead: their workers disappeared at every attempt", nil, k.fields.Add(map[string]any{"messages": len(dead)}))
	}
	if len(suspects) > 0 {
		k.logger.Info("Workers disappeared while they held messages, which are now claimed one at a time", k.fields.Add(map[string]any{"messages": len(suspects)}))
	}
	if err := run(ctx, tx, k.queue.bury(dead, reasonCrashed), k.queue.move(suspects, StateSuspect, 0)); err != nil {
		return 0, err
	}
	for _, key := range keys {
		if err := k.queue.promoteFirst(ctx, tx, k.config.Consumer, k.topic, key, true); err != nil {
			return 0, err
		}
	}
	return len(expired), nil
}

// sweepWaiting looks again at messages that wait for their ordering key.
func (k *keeper) sweepWaiting(ctx context.Context, tx wsql.Tx) (int, error) {
	expired, err := k.readExpired(ctx, tx, StateWaiting)
	if err != nil || len(expired) == 0 {
		return 0, err
	}
	seqs := make([]int64, len(expired))
	for n, m := range expired {
		seqs[n] = m.seq
	}
	behind, err := readNumbers(ctx, tx, k.queue.behind(seqs, k.config.DeadLetsGo))
	if err != nil {
		return 0, err
	}
	free := slices.DeleteFunc(seqs, func(seq int64) bool { return slices.Contains(behind, seq) })
	err = run(ctx, tx, k.queue.move(behind, StateWaiting, k.recheckWaiting()), k.queue.move(free, StatePending, 0))
	return len(expired), err
}

func (k *keeper) readExpired(ctx context.Context, tx wsql.Tx, state State) ([]expiredMessage, error) {
	var found []expiredMessage
	err := sqltx.Each(ctx, tx, k.queue.expired(k.config.Consumer, k.topic, state, sweepLimit), func(scan func(...any) error) error {
		var (
			m   expiredMessage
			key []byte
		)
		err := scan(&m.seq, &m.attempts, &key)
		m.orderingKey = string(key)
		found = append(found, m)
		return err
	})
	return found, err
}
