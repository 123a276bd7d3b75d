package deferred

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// SubscriberConfig configures a Subscriber. Schema and Consumer are required; the zero value of every other field is a safe default.
type SubscriberConfig struct {
	// Schema is the SQL dialect: postgres.Schema{}, mysql.Schema{} or sqlite.Schema{}. Required.
	Schema inbox.Schema

	// Consumer is the scope of the identities, the same as that of the Receiver and the Inbox. Required.
	Consumer string

	// Queue is the table to read: Pending, or Outgoing for a relay of the messages that an Outbox wrote. Default: Pending.
	Queue Queue

	// MaxInFlight is how many messages of a topic are with handlers at a time. Each one needs a connection of the pool; the Subscriber needs
	// one more for leases, and one for the claims of each topic. Default: 10; on databases with one writer it is always 1.
	MaxInFlight int

	// Lease is how long a message belongs to a worker that gives no sign of life. It is renewed while the handler runs, so it bounds not the
	// handler but how long a message waits after its worker died. Default: 30 s.
	Lease time.Duration

	// MaxAttempts is after how many attempts a message is dead. Claims of workers that died count. Default: 20; negative: never.
	MaxAttempts int

	// InitialBackoff is the upper bound of the random wait after the first failed attempt. It doubles with each attempt up to MaxBackoff.
	// Defaults: 1 s and 10 min.
	InitialBackoff, MaxBackoff time.Duration

	// PollInterval is the longest wait between two looks for messages, when several looks have found none. A Wakeup makes the next look come
	// at once. Default: 1 s.
	PollInterval time.Duration

	// Wakeup connects the Subscriber with Receivers of the same process. Default: none.
	Wakeup *Wakeup

	// DeadLetsGo lets the messages of an ordering key go on when one of them is dead. Default: false, they wait until an operator redrives or
	// discards the dead one.
	DeadLetsGo bool

	// Observer is told what becomes of messages. Package metrics has one for Prometheus. Default: none.
	Observer Observer

	// Timeout bounds each statement and COMMIT of the queue. It must be shorter than a third of Lease. Default: 5 s, or a sixth of Lease if that
	// is shorter.
	Timeout time.Duration

	// CloseTimeout bounds how long Close waits for acks and nacks of messages that were handed out. Keep it below the Router's CloseTimeout.
	// Default: 20 s.
	CloseTimeout time.Duration

	// AutoInitializeSchema creates the tables in NewSubscriber. Default: false.
	AutoInitializeSchema bool
}

func (c *SubscriberConfig) setDefaults() {
	if c.MaxInFlight == 0 {
		c.MaxInFlight = 10
	}
	if c.Lease == 0 {
		c.Lease = 30 * time.Second
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 20
	}
	if c.InitialBackoff == 0 {
		c.InitialBackoff = time.Second
	}
	if c.MaxBackoff == 0 {
		c.MaxBackoff = max(10*time.Minute, c.InitialBackoff)
	}
	if c.PollInterval == 0 {
		c.PollInterval = time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = min(5*time.Second, c.Lease/6)
	}
	if c.CloseTimeout == 0 {
		c.CloseTimeout = 20 * time.Second
	}
	if dialect, ok := c.Schema.(Dialect); ok && dialect.OneWriter() && c.MaxInFlight > 0 {
		c.MaxInFlight = 1
	}
}

// Validate returns all mistakes in the configuration, each naming its field.
func (c SubscriberConfig) Validate() error {
	_, err := dialectOf(c.Schema)
	errs := []error{err, validateConsumer(c.Consumer)}
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.MaxInFlight < 0 {
		refuse("MaxInFlight is negative: %d", c.MaxInFlight)
	}
	if c.Queue != Pending && c.Queue != Outgoing {
		refuse("Queue is neither Pending nor Outgoing: %d", int(c.Queue))
	}
	if c.Observer != nil && sqltx.IsNil(c.Observer) {
		refuse("Observer is a nil %T", c.Observer)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"Lease", c.Lease}, {"InitialBackoff", c.InitialBackoff}, {"MaxBackoff", c.MaxBackoff},
		{"PollInterval", c.PollInterval}, {"Timeout", c.Timeout}, {"CloseTimeout", c.CloseTimeout},
	} {
		if d.value < 0 {
			refuse("%s is negative: %s", d.field, d.value)
		}
	}
	if c.Timeout > 0 && c.Timeout > c.Lease/3 {
		refuse("Timeout (%s) is longer than a third of Lease (%s): a renewal that hangs once would lose every claim", c.Timeout, c.Lease)
	}
	if c.MaxBackoff < c.InitialBackoff {
		refuse("MaxBackoff (%s) is shorter than InitialBackoff (%s)", c.MaxBackoff, c.InitialBackoff)
	}
	return errors.Join(errs...)
}

// backoff is the wait after a number of attempts, with full jitter.
func (c *SubscriberConfig) backoff(attempts int) time.Duration {
	limit := c.MaxBackoff
	if shift := attempts - 1; shift < 32 && c.InitialBackoff<<shift > 0 {
		limit = min(limit, c.InitialBackoff<<max(0, shift))
	}
	return time.Duration(rand.Int64N(int64(limit) + 1))
}
