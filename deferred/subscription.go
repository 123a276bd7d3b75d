package deferred

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// subscription is one call of Subscribe. Three kinds of goroutines work for it: run claims, serve waits for what becomes of one message, and the
// Subscriber's keeper renews leases and looks for those that ended. run owns the second kind.
type subscription struct {
	*Subscriber
	topic  string
	fields watermill.LogFields
	output chan *message.Message

	ctx     context.Context // ends at Close or with the context of Subscribe; so do those of the messages
	cancel  context.CancelFunc
	drained context.Context // ends when messages that are still out are given back
	wakeup  <-chan struct{}

	mu         sync.Mutex
	claims     map[*claim]struct{}
	suspectDue bool // crash suspects wait to be claimed
	serving    sync.WaitGroup
	changed    chan struct{} // a claim ended
	look       chan struct{} // a message may be due

	alone        bool // the message in flight is a crash suspect
	suspectsTurn bool // suspects and others take turns
	lastClaim    time.Time
	doubtful     []int64 // tokens of claims whose COMMIT got no answer

	swept time.Time // by the keeper, which alone uses it
}

func newSubscription(ctx context.Context, s *Subscriber, topic string) *subscription {
	sub := &subscription{
		Subscriber: s,
		topic:      topic,
		fields:     watermill.LogFields{"consumer": s.config.Consumer, "topic": topic},
		output:     make(chan *message.Message),
		claims:     map[*claim]struct{}{},
		changed:    make(chan struct{}, 1),
		look:       make(chan struct{}, 1),
	}
	sub.ctx, sub.cancel = context.WithCancel(ctx)
	return sub
}

// run claims messages until the end, and waits until every message that was handed out is settled.
func (s *subscription) run() {
	defer close(s.output)
	defer s.cancel()
	defer context.AfterFunc(s.Subscriber.ctx, s.cancel)()
	var endDrain context.CancelFunc
	s.drained, endDrain = context.WithCancel(context.Background())
	defer endDrain()

	var unlisten func()
	s.wakeup, unlisten = s.config.Wakeup.listen()
	defer unlisten()

	s.claimLoop()

	timer := time.AfterFunc(s.config.CloseTimeout, endDrain)
	s.serving.Wait()
	timer.Stop()
}

// claimLoop claims while there is room, and waits otherwise.
func (s *subscription) claimLoop() {
	idle := sqltx.Backoff(s.config.PollInterval/8, s.config.PollInterval)
	failing := sqltx.Backoff(100*time.Millisecond, 5*time.Second)
	for s.ctx.Err() == nil {
		state, limit := s.next()
		if limit == 0 {
			s.wait(0, false)
			continue
		}
		claimed, more, err := s.claim(state, limit)
		switch {
		case s.ctx.Err() != nil:
			return
		case err != nil:
			s.logger.Error("Deferred subscriber cannot claim messages", err, s.fields)
			s.wait(failing.NextBackOff(), false)
			continue
		case claimed > 0:
			idle.Reset()
		}
		failing.Reset()
		if !more && !s.suspectsNext() {
			s.wait(idle.NextBackOff(), true)
		}
	}
}

// next decides what to claim now, and how much of it. A limit of zero means to wait until something changes.
func (s *subscription) next() (State, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inFlight := len(s.claims)
	switch {
	case s.alone && inFlight > 0:
		return 0, 0
	case s.suspectDue && s.suspectsTurn && inFlight > 0:
		return 0, 0
	case s.suspectDue && s.suspectsTurn:
		s.suspectsTurn = false
		return StateSuspect, 1
	}
	free := s.config.MaxInFlight - inFlight
	if free < (s.config.MaxInFlight+1)/2 && time.Since(s.lastClaim) < fullBatchWait {
		free = 0
	}
	if free > 0 {
		s.suspectsTurn = true
	}
	return StatePending, free
}

// fullBatchWait is how long a claim waits until half of the places are free, because a claim for each message would cost more than the messages.
const fullBatchWait = 20 * time.Millisecond

func (s *subscription) suspectsNext() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.suspectDue && s.suspectsTurn
}

// wait returns after a while, or when there is reason to look again. Without a duration it waits for a message that ends, or until a smaller claim
// is worth its cost.
func (s *subscription) wait(d time.Duration, wakeable bool) {
	changed, wakeup, look := s.changed, s.wakeup, s.look
	if d == 0 {
		d = fullBatchWait
		s.mu.Lock()
		if s.alone || s.suspectDue && s.suspectsTurn || len(s.claims) >= s.config.MaxInFlight {
			d = time.Hour // only a message that ends makes room
		}
		s.mu.Unlock()
	} else {
		changed = nil
	}
	if !wakeable {
		wakeup, look = nil, nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-wakeup:
	case <-look:
	case <-s.ctx.Done():
	}
}

// nudge makes the claim loop look again.
func (s *subscription) nudge() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// lookAgain ends a wait for messages to become due.
func (s *subscription) lookAgain() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}

// add begins to serve a claimed message.
func (s *subscription) add(claims []*claim, alone bool) {
	s.mu.Lock()
	for _, c := range claims {
		s.claims[c] = struct{}{}
	}
	s.alone = alone
	s.lastClaim = time.Now()
	s.mu.Unlock()
	for _, c := range claims {
		s.serving.Add(1)
		go s.serve(c)
	}
}

// remove ends the service of a message.
func (s *subscription) remove(c *claim) {
	c.cancelMsg()
	s.mu.Lock()
	delete(s.claims, c)
	s.mu.Unlock()
	s.serving.Done()
	s.nudge()
}

// serve hands out a message and settles it. Order: claims of one batch are handed out by goroutines of their own, so messages without an ordering
// key have no order.
func (s *subscription) serve(c *claim) {
	defer s.remove(c)
	select {
	case s.output <- c.msg:
	case <-c.msg.Context().Done(): // the subscription has ended, or the lease is lost
		s.giveBack(c)
		return
	}
	select {
	case <-c.msg.Acked():
	case <-c.msg.Nacked():
	case <-s.drained.Done():
		s.giveBack(c)
		return
	}
	select {
	case <-c.held():
	case <-s.drained.Done():
		s.giveBack(c)
		return
	}
	s.settle(c)
}
