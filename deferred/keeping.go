package deferred

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// keeper renews the leases of a Subscriber, and sweeps what other workers left behind, for as long as there are subscriptions. It works on a
// connection of its own.
type keeper struct {
	*Subscriber
	cancel context.CancelFunc
	ended  chan struct{}

	mu            sync.Mutex
	subscriptions []*subscription

	connected *table // nil: none at present
	release   func()
	renewed   time.Time
}

// join lets the Subscriber's keeper look after a subscription. Subscriber.mu must be locked.
func (s *Subscriber) join(sub *subscription) {
	if s.keeper == nil {
		ctx, cancel := context.WithCancel(context.Background())
		// There is no claim yet, so the first renewal is due when a lease that begins now is a third over.
		s.keeper = &keeper{Subscriber: s, cancel: cancel, ended: make(chan struct{}), renewed: time.Now()}
		go s.keeper.run(ctx)
	}
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	s.keeper.subscriptions = append(s.keeper.subscriptions, sub)
}

// leave is the end of join. The keeper ends with its last subscription.
func (s *Subscriber) leave(sub *subscription) {
	s.mu.Lock()
	k := s.keeper
	last := k.remove(sub)
	if last {
		s.keeper = nil
	}
	s.mu.Unlock()
	if last {
		k.cancel()
		<-k.ended
	}
}

func (k *keeper) remove(sub *subscription) (last bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// A copy, because the keeper may be ranging over the old one.
	k.subscriptions = slices.DeleteFunc(slices.Clone(k.subscriptions), func(other *subscription) bool { return other == sub })
	return len(k.subscriptions) == 0
}

func (k *keeper) all() []*subscription {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.subscriptions
}

func (k *keeper) interval() time.Duration { return k.config.Lease / 3 }

func (k *keeper) run(ctx context.Context) {
	defer close(k.ended)
	defer k.drop()
	if k.queue.OneWriter() {
		k.connected, k.release = k.queue, func() {} // a second connection would only wait for the first
	}
	ticker := time.NewTicker(max(k.interval()/4, time.Millisecond))
	defer ticker.Stop()
	for {
		k.renew(ctx)
		for _, sub := range k.all() {
			if time.Since(sub.swept) < k.interval() || sub.ctx.Err() != nil {
				continue
			}
			if k.sweep(ctx, sub) {
				sub.swept = time.Now()
			}
			k.renew(ctx) // however long the sweeps of many topics take
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// connect takes a connection out of the pool, at the first time before handlers can use them all.
func (k *keeper) connect(ctx context.Context) error {
	if k.connected != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, k.config.Timeout)
	defer cancel()
	db, release, err := reserve(ctx, k.db)
	if err != nil {
		return err
	}
	k.connected, k.release = k.queue.on(db), release
	return nil
}

func (k *keeper) drop() {
	if k.connected != nil {
		k.release()
		k.connected = nil
	}
}

// failed drops the connection, which may be broken.
func (k *keeper) failed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		k.logger.Info("Deferred subscriber cannot "+what+", it tries again", watermill.LogFields{"consumer": k.config.Consumer, "err": err.Error()})
	}
	if !k.queue.OneWriter() {
		k.drop()
	}
}

// renew makes the leases of all claims longer when a third of their time is over, and ends those that are lost.
func (k *keeper) renew(ctx context.Context) {
	if start := time.Now(); start.Sub(k.renewed) >= k.interval() && k.renewAll(ctx) {
		k.renewed = start
	}
	for _, sub := range k.all() {
		sub.loseExpired()
	}
}

// renewAll reports false if it must be tried again soon.
func (k *keeper) renewAll(ctx context.Context) bool {
	if err := k.connect(ctx); err != nil {
		k.failed(ctx, "get a connection for leases", err)
		return false
	}
	var claims []*claim
	for _, sub := range k.all() {
		claims = append(claims, sub.renewable()...)
	}
	if len(claims) == 0 {
		return true
	}
	sent := time.Now()
	held, err := k.renewNow(ctx, claims)
	if err != nil {
		k.failed(ctx, "renew leases", err)
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
			c.loseUnlessSettled()
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
	err := k.connected.once(ctx, func(ctx context.Context, tx wsql.Tx) error {
		clear(held)
		affected, err := sqltx.Exec(ctx, tx, k.connected.statements.renew(claims, k.config.Lease))
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
	return sqltx.Each(ctx, tx, k.connected.held(claims), func(scan func(...any) error) error {
		var pair [2]int64
		err := scan(&pair[0], &pair[1])
		held[pair] = true
		return err
	})
}

// loseUnlessSettled ends a claim whose row is gone, unless it is gone because the message was just processed.
func (c *claim) loseUnlessSettled() {
	select {
	case <-c.msg.Acked():
		return
	case <-c.msg.Nacked():
		return
	default:
	}
	if completed, lost, _ := c.outcome(); completed || lost || !c.subscription.serves(c) {
		return
	}
	c.subscription.logger.Error("Lease of a message is lost: its handler's context ends", nil, c.fields())
	c.lose()
	c.subscription.observe(LeaseLost, 1)
}

func (s *subscription) serves(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, serving := s.claims[c]
	return serving
}

// loseExpired ends claims whose leases could not be renewed in time.
func (s *subscription) loseExpired() {
	for _, c := range s.renewable() {
		if c.leaseEnded(time.Now()) {
			c.loseUnlessSettled()
		}
	}
}

// sweepLimit is how many messages one statement of a sweep moves.
const sweepLimit = 100

// sweep looks for claims of workers that disappeared, for messages that need not wait for their key any more, and for crash suspects. It reports false if
// it must be tried again soon.
func (k *keeper) sweep(ctx context.Context, sub *subscription) bool {
	if err := k.connect(ctx); err != nil {
		return false // renew has told
	}
	if k.queue.OneWriter() && k.handlerWrites() {
		return false // else a queue that is always busy would hardly ever be swept
	}
	sweep := &sweep{subscription: sub, queue: k.connected}
	if err := k.connected.once(ctx, sweep.inTx); err != nil {
		k.failed(ctx, "look for lost claims", err)
		return true
	}
	sub.observe(Deserted, sweep.deserted)
	sub.observe(Died, sweep.buried)
	if sweep.suspects {
		sub.suspectsFound()
	}
	return sweep.moved < sweepLimit
}

func (k *keeper) handlerWrites() bool {
	for _, sub := range k.all() {
		sub.mu.Lock()
		claims := len(sub.claims)
		sub.mu.Unlock()
		if len(sub.renewable()) < claims {
			return true
		}
	}
	return false
}

func (s *subscription) suspectsFound() {
	s.mu.Lock()
	s.suspectDue = true
	s.mu.Unlock()
	s.nudge()
	s.lookAgain()
}

// sweep is one transaction that sweeps for one subscription.
type sweep struct {
	*subscription
	queue    *table // on the keeper's connection
	moved    int    // the greatest number of messages that one of its statements moved
	suspects bool   // there are some
	deserted int    // how many it made suspects
	buried   int    // how many it made dead
}

func (s *sweep) inTx(ctx context.Context, tx wsql.Tx) error {
	if err := run(ctx, tx, s.queue.ClaimFirst(s.config.Queue)); err != nil {
		return err
	}
	lost, err := s.lostClaims(ctx, tx)
	if err != nil {
		return err
	}
	waiting, err := s.waiting(ctx, tx)
	if err != nil {
		return err
	}
	s.moved = max(lost, waiting)
	s.suspects, err = sqltx.QueryRow(ctx, tx, s.queue.hasDue(s.config.Consumer, s.topic, StateSuspect))
	return err
}

// expiredMessage is what expired returns.
type expiredMessage struct {
	seq         int64
	attempts    int
	orderingKey string
}

// lostClaims makes suspects of messages whose lease ended without an outcome, or dead ones at the limit.
func (s *sweep) lostClaims(ctx context.Context, tx wsql.Tx) (int, error) {
	expired, err := s.expired(ctx, tx, StateClaimed)
	if err != nil || len(expired) == 0 {
		return 0, err
	}
	var suspects, dead []int64
	var keys []string
	for _, m := range expired {
		if s.config.MaxAttempts < 0 || m.attempts < s.config.MaxAttempts {
			suspects = append(suspects, m.seq)
			continue
		}
		dead = append(dead, m.seq)
		if m.orderingKey != "" && s.config.DeadLetsGo {
			keys = append(keys, m.orderingKey)
		}
	}
	if len(dead) > 0 {
		s.logger.Error("Deferred messages are dead: their workers disappeared at every attempt", nil, s.fields.Add(map[string]any{"messages": len(dead)}))
	}
	if len(suspects) > 0 {
		s.logger.Info("Workers disappeared while they held messages, which are now claimed one at a time", s.fields.Add(map[string]any{"messages": len(suspects)}))
	}
	if err := run(ctx, tx, s.queue.bury(dead, reasonCrashed), s.queue.move(suspects, StateSuspect, 0)); err != nil {
		return 0, err
	}
	s.deserted, s.buried = len(suspects), len(dead)
	for _, key := range keys {
		if err := s.queue.promoteFirst(ctx, tx, s.config.Consumer, s.topic, key, true); err != nil {
			return 0, err
		}
	}
	return len(expired), nil
}

// waiting looks again at messages that wait for their ordering key.
func (s *sweep) waiting(ctx context.Context, tx wsql.Tx) (int, error) {
	expired, err := s.expired(ctx, tx, StateWaiting)
	if err != nil || len(expired) == 0 {
		return 0, err
	}
	seqs := make([]int64, len(expired))
	for n, m := range expired {
		seqs[n] = m.seq
	}
	behind, err := readNumbers(ctx, tx, s.queue.behind(seqs, s.config.DeadLetsGo))
	if err != nil {
		return 0, err
	}
	free := slices.DeleteFunc(seqs, func(seq int64) bool { return slices.Contains(behind, seq) })
	err = run(ctx, tx, s.queue.move(behind, StateWaiting, s.recheckWaiting()), s.queue.move(free, StatePending, 0))
	return len(expired), err
}

func (s *sweep) expired(ctx context.Context, tx wsql.Tx, state State) ([]expiredMessage, error) {
	var found []expiredMessage
	err := sqltx.Each(ctx, tx, s.queue.expired(s.config.Consumer, s.topic, state, sweepLimit), func(scan func(...any) error) error {
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
