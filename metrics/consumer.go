package metrics

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-inbox/inbox"
)

// Values of the label outcome where no other package has a name for them.
const (
	outcomeFailed     = "failed"
	outcomeCommitted  = "committed"
	outcomeRolledBack = "rolled back"
	outcomeUnresolved = "unresolved"
)

// stages are those in which a delivery can fail.
var stages = []inbox.Stage{
	inbox.StageIdentity, inbox.StageBegin, inbox.StageInsert, inbox.StageCompare, inbox.StageHandler,
	inbox.StageCheck, inbox.StageOutbox, inbox.StageClaim, inbox.StageCommit,
}

// consumer has the metrics of one consumer, found once, so that a delivery looks up none by its labels.
type consumer struct {
	processed, duplicate, failed      prometheus.Counter
	failures                          map[inbox.Stage]prometheus.Counter
	mismatches, conflicts, earlyAcks  prometheus.Counter
	committed, rolledBack, unresolved prometheus.Counter
	inFlightElsewhere                 prometheus.Counter
	inFlight                          prometheus.Gauge
	beginWait, identityWait           prometheus.Observer
	transaction, distance             prometheus.Observer

	mu          sync.Mutex
	largest     time.Duration
	distanceMax prometheus.Gauge
}

// consumer makes the metrics of a consumer.
func (f *families) consumer(name string) *consumer {
	c := &consumer{
		processed:         f.deliveries.WithLabelValues(name, inbox.Processed.String()),
		duplicate:         f.deliveries.WithLabelValues(name, inbox.Duplicate.String()),
		failed:            f.deliveries.WithLabelValues(name, outcomeFailed),
		failures:          map[inbox.Stage]prometheus.Counter{},
		mismatches:        f.mismatches.WithLabelValues(name),
		conflicts:         f.conflicts.WithLabelValues(name),
		earlyAcks:         f.earlyAcks.WithLabelValues(name),
		committed:         f.uncertainCommits.WithLabelValues(name, outcomeCommitted),
		rolledBack:        f.uncertainCommits.WithLabelValues(name, outcomeRolledBack),
		unresolved:        f.uncertainCommits.WithLabelValues(name, outcomeUnresolved),
		inFlightElsewhere: f.inFlightElsewhere.WithLabelValues(name),
		inFlight:          f.inFlight.WithLabelValues(name),
		beginWait:         f.beginWait.WithLabelValues(name),
		identityWait:      f.identityWait.WithLabelValues(name),
		transaction:       f.transaction.WithLabelValues(name),
		distance:          f.distance.WithLabelValues(name),
		distanceMax:       f.distanceMax.WithLabelValues(name),
	}
	for _, stage := range stages {
		c.failures[stage] = f.failures.WithLabelValues(name, string(stage))
	}
	return c
}

func (c *consumer) observe(report inbox.DeliveryReport) {
	switch report.Outcome {
	case inbox.Processed:
		c.processed.Inc()
	case inbox.Duplicate:
		c.duplicate.Inc()
		c.observeDistance(report)
	default:
		c.failed.Inc()
		if counter := c.failures[report.Stage]; counter != nil {
			counter.Inc()
		}
		if errors.Is(report.Err, inbox.ErrInFlight) {
			c.inFlightElsewhere.Inc()
		}
	}
	if report.Mismatch {
		c.mismatches.Inc()
	}
	if report.EarlyAck {
		c.earlyAcks.Inc()
	}
	add(c.conflicts, report.Conflicts)
	if report.UncertainCommits > 0 {
		add(c.committed, report.ResolvedCommitted)
		add(c.rolledBack, report.ResolvedRolledBack)
		add(c.unresolved, report.UncertainCommits-report.ResolvedCommitted-report.ResolvedRolledBack)
	}
	if report.InTransaction > 0 || report.BeginWait > 0 {
		c.beginWait.Observe(report.BeginWait.Seconds())
		c.identityWait.Observe(report.IdentityWait.Seconds())
		c.transaction.Observe(report.InTransaction.Seconds())
	}
}

// observeDistance leaves out messages with other content, which are no redelivery.
func (c *consumer) observeDistance(report inbox.DeliveryReport) {
	if report.Mismatch {
		return
	}
	c.distance.Observe(report.RedeliveryAge.Seconds())
	c.mu.Lock()
	defer c.mu.Unlock()
	if report.RedeliveryAge > c.largest {
		c.largest = report.RedeliveryAge
		c.distanceMax.Set(c.largest.Seconds())
	}
}

func add(counter prometheus.Counter, n int) {
	if n > 0 {
		counter.Add(float64(n))
	}
}
