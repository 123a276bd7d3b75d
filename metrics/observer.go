package metrics

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/internal/sqltx"
	"github.com/watermill-inbox/inbox/retention"
)

// ObserverConfig configures an Observer. The zero value of every field is a safe default.
type ObserverConfig struct {
	// Consumers are exposed from the start, with zeros, so that Prometheus sees the first failure of each as an increase. Others are exposed
	// from their first delivery on. Default: none.
	Consumers []string

	// Horizon is how long retention keeps identities, the same as there. It is exposed, so that alerts can compare the redelivery distance with
	// it. Default: zero, not exposed.
	Horizon time.Duration

	// WaitBuckets are the upper bounds of the histograms of waits, transactions and batches, in seconds. Default: 1 ms to 30 s.
	WaitBuckets []float64

	// DistanceBuckets are those of the redelivery distance, in seconds. Default: 1 s to 30 days.
	DistanceBuckets []float64
}

func (c *ObserverConfig) setDefaults() {
	if c.WaitBuckets == nil {
		c.WaitBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	}
	if c.DistanceBuckets == nil {
		const minute, hour, day = 60, 3600, 86400
		c.DistanceBuckets = []float64{
			1, 5, 15, 30, minute, 2 * minute, 5 * minute, 15 * minute, 30 * minute,
			hour, 3 * hour, 6 * hour, 12 * hour, day, 2 * day, 3 * day, 7 * day, 14 * day, 30 * day,
		}
	}
}

// Validate returns all mistakes in the configuration, each naming its field.
func (c ObserverConfig) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Horizon < 0 {
		refuse("Horizon is negative: %s", c.Horizon)
	}
	for _, buckets := range []struct {
		field string
		value []float64
	}{{"WaitBuckets", c.WaitBuckets}, {"DistanceBuckets", c.DistanceBuckets}} {
		for n := 1; n < len(buckets.value); n++ {
			if buckets.value[n] <= buckets.value[n-1] {
				refuse("%s do not increase: %v", buckets.field, buckets.value)
				break
			}
		}
	}
	return errors.Join(errs...)
}

// Observer counts deliveries, events of deferred Subscribers and batches of retention. One Observer serves any number of them. It is safe for concurrent
// use, and has no goroutine and nothing to close.
type Observer struct {
	families *families

	mu        sync.RWMutex
	consumers map[string]*consumer
	events    map[queueConsumer]map[deferred.Event]prometheus.Counter
}

var (
	_ inbox.Observer      = (*Observer)(nil)
	_ inbox.StartObserver = (*Observer)(nil)
	_ deferred.Observer   = (*Observer)(nil)
	_ retention.Observer  = (*Observer)(nil)
)

// NewObserver makes an Observer whose metrics are in a registry. It fails if the registry has metrics of these names already, those of another Observer for
// instance, and then none of its own is left there.
func NewObserver(registerer prometheus.Registerer, config ObserverConfig) (*Observer, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("metrics: invalid ObserverConfig: %w", err)
	}
	if sqltx.IsNil(registerer) {
		return nil, errors.New("metrics: new observer: the registerer is nil")
	}
	config.setDefaults()
	o := &Observer{families: newFamilies(config), consumers: map[string]*consumer{}, events: map[queueConsumer]map[deferred.Event]prometheus.Counter{}}
	var registered []prometheus.Collector
	for _, collector := range o.families.all(config.Horizon) {
		if err := registerer.Register(collector); err != nil {
			for _, other := range registered {
				registerer.Unregister(other)
			}
			return nil, fmt.Errorf("metrics: new observer: %w", err)
		}
		registered = append(registered, collector)
	}
	for _, name := range config.Consumers {
		o.consumer(name)
	}
	return o, nil
}

// consumer returns the metrics of a consumer, by its name as it is.
func (o *Observer) consumer(name string) *consumer {
	o.mu.RLock()
	c := o.consumers[name]
	o.mu.RUnlock()
	if c != nil {
		return c
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if c = o.consumers[name]; c == nil {
		c = o.families.consumer(label(name))
		o.consumers[name] = c
	}
	return c
}

// ObserveStart is for the Inbox.
func (o *Observer) ObserveStart(consumer string) {
	o.consumer(consumer).inFlight.Inc()
}

// ObserveDelivery is for the Inbox.
func (o *Observer) ObserveDelivery(report inbox.DeliveryReport) {
	c := o.consumer(report.Consumer)
	if report.Consumer != "" { // else it was not announced
		c.inFlight.Dec()
	}
	c.observe(report)
}

// ObserveBatch is for a retention.Cleaner. Payloads of dead messages are counted as removed rows of no consumer. A dry run removes nothing.
func (o *Observer) ObserveBatch(batch retention.Batch) {
	name := label(batch.Consumer)
	o.families.examined.WithLabelValues(name).Add(float64(batch.Examined))
	if !batch.DryRun {
		o.families.removed.WithLabelValues(name).Add(float64(batch.Removed + batch.Payloads))
	}
	o.families.batch.WithLabelValues(name).Observe(batch.Duration.Seconds())
}
