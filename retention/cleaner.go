package retention

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// ErrAnotherSweeper says that another instance sweeps the same table at this moment.
var ErrAnotherSweeper = errors.New("another sweeper is at work")

// Cleaner removes identities that are older than their horizon. It never removes one that a message in the table of pending ones has, be that pending, claimed or dead.
//
// Any number of instances may run one: they share a lock, so that one sweeps at a time, and none waits. It is safe for concurrent use.
type Cleaner struct {
	config Config
	table  *table
	queues map[deferred.Queue]*deferred.Store
	logger watermill.LoggerAdapter
}

// NewCleaner makes a Cleaner on the database of the Inbox, which must be a pool of at least two connections: one holds the sweepers' lock. (SQLite needs one.) It warns of horizons
// that are shorter than Config.Needs asks for, and does not talk to the database. A nil logger logs nothing.
func NewCleaner(db wsql.Beginner, config Config, logger watermill.LoggerAdapter) (*Cleaner, error) {
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("retention: invalid config: %w", err)
	}
	t, err := newTable(db, config.Schema, config.Timeout, logger)
	if err != nil {
		return nil, fmt.Errorf("retention: new cleaner: %w", err)
	}
	if lock, _, _ := t.SweeperLock(); !lock.IsZero() && sqltx.PoolSize(db) == 1 {
		return nil, errors.New("retention: new cleaner: the pool has one connection, and a sweep needs two: one holds the lock that keeps other sweepers out")
	}
	c := &Cleaner{config: config, table: t, queues: map[deferred.Queue]*deferred.Store{}, logger: logger}
	for _, queue := range []deferred.Queue{deferred.Pending, deferred.Outgoing} {
		if c.queues[queue], err = deferred.NewStore(db, config.Schema, queue, logger); err != nil {
			return nil, fmt.Errorf("retention: new cleaner: %w", err)
		}
	}
	c.warn()
	return c, nil
}

// warn tells of horizons that are too short for what the user declared.
func (c *Cleaner) warn() {
	safe := c.config.Needs.Horizon()
	names := append([]string{""}, slices.Sorted(maps.Keys(c.config.Horizons))...)
	for _, name := range names {
		horizon := c.config.horizonOf(name)
		if horizon >= safe {
			continue
		}
		c.logger.Error("Retention is shorter than messages can be when they come back: they would be processed again",
			fmt.Errorf("horizon %s is below %s", horizon, safe), watermill.LogFields{"consumer": name, "horizon": horizon.String(), "safe_horizon": safe.String()})
	}
}

// Run sweeps now and then every Interval, until ctx ends; it returns nil then. A sweep that fails is logged and not the end.
func (c *Cleaner) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		report, err := c.RunOnce(ctx)
		switch {
		case errors.Is(err, ErrAnotherSweeper):
			c.logger.Debug("Another instance removes old identities", nil)
		case err != nil && ctx.Err() == nil:
			c.logger.Error("Retention sweep failed: the next one goes on", err, watermill.LogFields{"removed": report.Removed()})
		case err == nil:
			c.logger.Info("Retention sweep is done", watermill.LogFields{
				"removed": report.Removed(), "examined": report.Examined(), "payloads": report.Payloads, "dry_run": report.DryRun,
			})
		}
		if !sqltx.Sleep(ctx, vary(c.config.Interval)) {
			break
		}
	}
	return nil
}

// vary returns a duration that differs by up to a tenth.
func vary(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.2*float64(d))
}

// Report is what a sweep did, or in a dry run would have done.
type Report struct {
	DryRun    bool
	Consumers []ConsumerReport // in the order of their names
	Payloads  int64            // payloads of dead messages that were removed
}

// ConsumerReport is the part of one consumer.
type ConsumerReport struct {
	Consumer string
	Horizon  time.Duration // Forever: not looked at
	Examined int64
	Removed  int64
}

// Removed is the sum over all consumers.
func (r Report) Removed() (n int64) {
	for _, c := range r.Consumers {
		n += c.Removed
	}
	return n
}

// Examined is the sum over all consumers.
func (r Report) Examined() (n int64) {
	for _, c := range r.Consumers {
		n += c.Examined
	}
	return n
}

// RunOnce sweeps once through all consumers that have identities. The error is ErrAnotherSweeper if another instance does that already. After any error the report says what
// had been done: that stays.
func (c *Cleaner) RunOnce(ctx context.Context) (Report, error) {
	s := &sweep{Cleaner: c, report: Report{DryRun: c.config.DryRun}}
	err := s.run(ctx)
	if err != nil {
		err = fmt.Errorf("retention: sweep: %w", err)
	}
	return s.report, err
}
