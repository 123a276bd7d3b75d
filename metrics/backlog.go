package metrics

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// Counter is what a Backlog asks, a *deferred.Store. See its CountUpTo.
type Counter interface {
	CountUpTo(ctx context.Context, limit int) (counts []deferred.Count, complete bool, err error)
}

var _ Counter = (*deferred.Store)(nil)

// BacklogConfig configures a Backlog. The zero value of every field is a safe default.
type BacklogConfig struct {
	// Queue is that of the store; it becomes the label queue. Default: Pending.
	Queue deferred.Queue

	// Consumers are exposed with zeros from the first successful query on, so that an empty backlog can be told from a missing one. Others are
	// exposed once they have had messages. Default: none.
	Consumers []string

	// CacheTime is how long values are served without another query, successful or not, whatever the number of scrapes. Keep it below the
	// interval of the scrapes. Default: 10 s.
	CacheTime time.Duration

	// Timeout bounds a query, and how long a scrape waits for one. Keep it below the timeout of the scrapes. Default: 3 s.
	Timeout time.Duration

	// CountLimit is how many messages of a consumer, topic and state are counted at most. A query costs no more than reading so many entries of an
	// index for each, half a millisecond for a thousand. Default: 1,000.
	CountLimit int

	// Logger is told why a query failed. Default: none.
	Logger watermill.LoggerAdapter
}

func (c *BacklogConfig) setDefaults() {
	if c.CacheTime == 0 {
		c.CacheTime = 10 * time.Second
	}
	if c.Timeout == 0 {
		c.Timeout = 3 * time.Second
	}
	if c.CountLimit == 0 {
		c.CountLimit = 1000
	}
	if c.Logger == nil {
		c.Logger = watermill.NopLogger{}
	}
}

// Validate returns all mistakes in the configuration, each naming its field.
func (c BacklogConfig) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Queue != deferred.Pending && c.Queue != deferred.Outgoing {
		refuse("Queue is neither Pending nor Outgoing: %d", int(c.Queue))
	}
	if c.CacheTime < 0 {
		refuse("CacheTime is negative: %s", c.CacheTime)
	}
	if c.Timeout < 0 {
		refuse("Timeout is negative: %s", c.Timeout)
	}
	if c.CountLimit < 0 {
		refuse("CountLimit is negative: %d", c.CountLimit)
	}
	return errors.Join(errs...)
}

// Backlog exposes what waits in a queue. It is a prometheus.Collector: a scrape asks the database if the values are older than CacheTime and no other
// scrape is asking, and never waits longer than Timeout. While the database does not answer, the last values are served with inbox_backlog_up 0.
//
// It is safe for concurrent use.
type Backlog struct {
	counter Counter
	config  BacklogConfig
	descs   descs
	ctx     context.Context // ends at Close
	cancel  context.CancelFunc

	mu      sync.Mutex
	begun   time.Time     // of the last query
	running chan struct{} // closed at the end of the query under way; nil: there is none
	values  values
}

var _ prometheus.Collector = (*Backlog)(nil)

// NewBacklog makes a Backlog of the queue of a *deferred.Store. It asks nothing until the first scrape. Register it in one registry; Close ends a
// query under way.
func NewBacklog(counter Counter, config BacklogConfig) (*Backlog, error) {
	if sqltx.IsNil(counter) {
		return nil, errors.New("metrics: new backlog: the store is nil")
	}
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("metrics: invalid BacklogConfig: %w", err)
	}
	config.setDefaults()
	b := &Backlog{counter: counter, config: config, descs: newDescs(config.Queue)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Close ends a query under way and waits for its end. Scrapes afterwards get the last values, with inbox_backlog_up 0. Close it before the pool of the store.
func (b *Backlog) Close() error {
	b.cancel()
	b.mu.Lock()
	running := b.running
	b.values.up = false
	b.mu.Unlock()
	if running != nil {
		<-running
	}
	return nil
}

// Describe is for the registry.
func (b *Backlog) Describe(descs chan<- *prometheus.Desc) { b.descs.describe(descs) }

// Collect is for the registry.
func (b *Backlog) Collect(metrics chan<- prometheus.Metric) {
	b.refresh()
	b.mu.Lock()
	values := b.values // what it refers to does not change
	b.mu.Unlock()
	values.collect(b.descs, metrics)
}

// refresh returns when the values are fresh, or Timeout after the query began.
func (b *Backlog) refresh() {
	running, left := b.query()
	if running == nil {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-running:
	case <-timer.C: // a driver that does not look at its context
		b.mu.Lock()
		b.values.up = false
		b.mu.Unlock()
	}
}

// query starts a query, unless one is under way or the last one began less than CacheTime ago. It returns what is closed at its end, nil for none,
// and how long to wait for that.
func (b *Backlog) query() (running chan struct{}, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.running == nil && b.ctx.Err() == nil && (b.begun.IsZero() || now.Sub(b.begun) >= b.config.CacheTime) {
		b.begun, b.running = now, make(chan struct{})
		go b.ask(b.running)
	}
	return b.running, b.config.Timeout - now.Sub(b.begun)
}

// ask is one query. It ends at Timeout or at Close, as far as the driver looks at its context; there is one at a time.
func (b *Backlog) ask(done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(b.ctx, b.config.Timeout)
	defer cancel()
	start := time.Now()
	counts, complete, err := b.counter.CountUpTo(ctx, b.config.CountLimit)
	took := time.Since(start)
	if err != nil && b.ctx.Err() == nil {
		b.config.Logger.Error("Backlog cannot be counted", err, watermill.LogFields{"queue": queueLabel(b.config.Queue)})
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.running = nil
	b.values.took = took
	if b.values.up = err == nil && b.ctx.Err() == nil; b.values.up {
		b.values.set(counts, complete, b.config)
	}
}
