package deferred

import (
	"context"
	"sync"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// claim is a message that this process holds.
type claim struct {
	subscription *subscription
	orderingKey  string

	row       inbox.Row
	seq       int64
	token     int64
	attempts  int // this one included
	msg       *message.Message
	cancelMsg context.CancelFunc

	mu        sync.Mutex
	holders   int           // deliveries through an Inbox that have not returned
	released  chan struct{} // closed when the last of them has
	completed bool          // the row went with a committed transaction
	early     bool          // the message was acked before a delivery ended
	err       error         // of the last delivery
	lost      bool
	missed    bool      // a renewal did not find the row
	leaseEnd  time.Time // by this process's clock, counted from before the statement was sent
}

var _ inbox.Claim = (*claim)(nil)

// Row is for the Inbox.
func (c *claim) Row() inbox.Row { return c.row }

// Hold is for the Inbox.
func (c *claim) Hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holders++; c.holders == 1 {
		c.released = make(chan struct{})
	}
}

// Release is for the Inbox.
func (c *claim) Release(committed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.msg.Acked():
		c.early = true
	default:
	}
	c.completed = c.completed || committed
	c.err = err
	if c.holders--; c.holders == 0 {
		close(c.released)
	}
}

// CompleteQuery is for the Inbox.
func (c *claim) CompleteQuery(schema inbox.Schema, row inbox.Row) wsql.Query {
	return c.subscription.queue.complete(c, schema, row)
}

// held returns a channel that is closed when no Inbox holds the claim.
func (c *claim) held() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holders == 0 {
		return closed
	}
	return c.released
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// isHeld tells that an Inbox has a transaction open for the message.
func (c *claim) isHeld() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holders > 0
}

// outcome is what the deliveries of the claim came to.
func (c *claim) outcome() (completed, lost bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.completed, c.lost, c.err
}

// ackedEarly tells that the handler, or a middleware before it, acked the message before its effect could be committed.
func (c *claim) ackedEarly() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.early
}

func (c *claim) recordError(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// lose ends the claim: another worker may have the message by now.
func (c *claim) lose() {
	c.mu.Lock()
	c.lost = true
	c.mu.Unlock()
	c.cancelMsg()
}

// missedFirst reports whether this is the first time that the row is missing.
func (c *claim) missedFirst() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.missed
	c.missed = true
	return first
}

func (c *claim) setLease(end time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaseEnd = end
}

func (c *claim) leaseEnded(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.After(c.leaseEnd)
}

// Attempt returns how often the message was claimed, this time included, so 1 for the first attempt. The second value is false for
// messages that do not come from a Subscriber of this package.
func Attempt(msg *message.Message) (int, bool) {
	c, ok := inbox.ClaimOf(msg).(*claim)
	if !ok {
		return 0, false
	}
	return c.attempts, true
}

// RecordError is a middleware that keeps a handler's error with the message, for handlers without an Inbox. Inbox.Middleware does it
// itself. Without either, operators see only that the message was nacked.
func RecordError(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		if c, ok := inbox.ClaimOf(msg).(*claim); ok && err != nil {
			c.recordError(err)
		}
		return produced, err
	}
}
