package retention

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// Forever is the horizon of consumers whose identities are never removed.
const Forever time.Duration = math.MaxInt64

// Config configures a Cleaner. Schema and Horizon are required; the zero value of every other field is a safe default.
type Config struct {
	// Schema is the SQL dialect of the Inbox: postgres.Schema{}, mysql.Schema{} or sqlite.Schema{}. Required.
	Schema inbox.Schema

	// Horizon is how long identities are kept, counted from when they were processed by the database's clock, to the second. Forever keeps them. Required: there is no
	// safe default, because a message that comes back later is processed again. See Needs.
	Horizon time.Duration

	// Horizons are those of consumers that differ from Horizon, by name. Default: none.
	Horizons map[string]time.Duration

	// Needs declares how old messages can come back. NewCleaner warns of each horizon below Needs.Horizon. Default: nothing is declared, no warning.
	Needs Needs

	// DeadPayloads is how long payload and metadata of dead messages are kept after their death, in both tables of package deferred. The row stays, with identity, reason and last error:
	// it is still what recognises redeliveries, but Redrive refuses it. Default: 0, they are kept.
	DeadPayloads time.Duration

	// DryRun counts what would be removed, and removes nothing. Default: false.
	DryRun bool

	// BatchSize is how many identities one statement, in a transaction of its own, removes at most. Their locks hold up only messages with these very identities. Default: 500.
	BatchSize int

	// Window is how many identities one statement looks at. Default: 5000.
	Window int

	// Pause is the wait after each transaction that removes, and after each that only reads when there is nothing to remove. In it consumers have the database for themselves. With the
	// default, a sweep removes at most 12,500 identities a second. Default: 40 ms.
	Pause time.Duration

	// Interval is the wait of Run between two sweeps, of which each reads all identities once; it varies at random by a tenth, so that instances do not all come at once. It is that of
	// this instance: ten instances sweep ten times as often. Default: 1 h.
	Interval time.Duration

	// Timeout bounds each transaction. Default: 5 s.
	Timeout time.Duration

	// Observer is told about progress. Default: none.
	Observer Observer
}

// Observer is told about the progress of a Cleaner, for metrics and progress bars. It is called by the goroutine that sweeps. A panic of it is logged and changes nothing.
type Observer interface {
	// ObserveBatch is called after each transaction of a sweep.
	ObserveBatch(batch Batch)
}

// Batch is what one transaction did, or in a dry run would have done.
type Batch struct {
	Consumer string        // empty for dead payloads
	DryRun   bool          // nothing was removed
	Examined int           // identities that were looked at
	Removed  int           // identities that were removed, or would be in a dry run
	Payloads int           // payloads of dead messages that were removed
	Duration time.Duration // of the transaction
}

type nopObserver struct{}

func (nopObserver) ObserveBatch(Batch) {}

func (c *Config) setDefaults() {
	if c.BatchSize == 0 {
		c.BatchSize = 500
	}
	if c.Window == 0 {
		c.Window = 5000
	}
	if c.Pause == 0 {
		c.Pause = 40 * time.Millisecond
	}
	if c.Interval == 0 {
		c.Interval = time.Hour
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	if c.Observer == nil {
		c.Observer = nopObserver{}
	}
}

// Validate returns all mistakes in the configuration, each naming its field.
func (c Config) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if _, err := dialectOf(c.Schema); err != nil {
		errs = append(errs, err)
	}
	switch {
	case c.Horizon == 0:
		refuse("Horizon is missing: how long are identities kept? retention.Forever if they are never to be removed")
	case c.Horizon < 0:
		refuse("Horizon is negative: %s", c.Horizon)
	}
	for _, consumer := range slices.Sorted(maps.Keys(c.Horizons)) {
		if horizon := c.Horizons[consumer]; horizon <= 0 {
			refuse("Horizons[%q] is %s: it must be positive, or retention.Forever", consumer, horizon)
		}
		if consumer == "" {
			refuse("Horizons has one for no consumer: that is Horizon")
		}
	}
	for _, field := range []struct {
		name  string
		value time.Duration
	}{
		{"DeadPayloads", c.DeadPayloads}, {"Pause", c.Pause}, {"Interval", c.Interval}, {"Timeout", c.Timeout},
		{"Needs.BrokerRetention", c.Needs.BrokerRetention}, {"Needs.MaxRedeliveryAge", c.Needs.MaxRedeliveryAge}, {"Needs.DeadLetterAge", c.Needs.DeadLetterAge},
		{"Needs.RelayRepublish", c.Needs.RelayRepublish}, {"Needs.RestoreWindow", c.Needs.RestoreWindow},
	} {
		if field.value < 0 {
			refuse("%s is negative: %s", field.name, field.value)
		}
	}
	if c.BatchSize < 0 || c.BatchSize > maxBatchSize {
		refuse("BatchSize is %d, not 1 to %d", c.BatchSize, maxBatchSize)
	}
	if c.Window < 0 {
		refuse("Window is negative: %d", c.Window)
	}
	if c.Observer != nil && sqltx.IsNil(c.Observer) {
		refuse("Observer is a nil %T", c.Observer)
	}
	return errors.Join(errs...)
}

// maxBatchSize keeps a statement, with ids of 512 bytes, below what servers accept as one.
const maxBatchSize = 1000

func (c Config) horizonOf(consumer string) time.Duration {
	if horizon, ok := c.Horizons[consumer]; ok {
		return horizon
	}
	return c.Horizon
}
