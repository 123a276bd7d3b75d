package metrics

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-inbox/inbox/deferred"
)

// families are the metrics of an Observer.
type families struct {
	deliveries, failures, mismatches, conflicts    *prometheus.CounterVec
	uncertainCommits, earlyAcks, inFlightElsewhere *prometheus.CounterVec
	inFlight, distanceMax                          *prometheus.GaugeVec
	beginWait, identityWait, transaction, distance *prometheus.HistogramVec
	removed, examined                              *prometheus.CounterVec
	batch                                          *prometheus.HistogramVec
	events                                         *prometheus.CounterVec
}

func newFamilies(config ObserverConfig) *families {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"consumer"})
	}
	wait := config.WaitBuckets
	return &families{
		deliveries:        counter("inbox_deliveries_total", "Ended deliveries.", "consumer", "outcome"),
		failures:          counter("inbox_failures_total", "Failed deliveries by stage.", "consumer", "stage"),
		mismatches:        counter("inbox_mismatches_total", "Messages whose identity was processed with other content.", "consumer"),
		conflicts:         counter("inbox_conflicts_total", "Transactions that the database gave up in favour of others.", "consumer"),
		uncertainCommits:  counter("inbox_uncertain_commits_total", "COMMITs without a clear answer, by what they turned out to be.", "consumer", "outcome"),
		earlyAcks:         counter("inbox_early_acks_total", "Messages that were acked before their transaction was committed.", "consumer"),
		inFlightElsewhere: counter("inbox_in_flight_elsewhere_total", "Deliveries that gave up waiting for another holder of their identity.", "consumer"),
		inFlight:          gauge("inbox_in_flight", "Deliveries that have begun and not ended.", "consumer"),
		beginWait:         histogram("inbox_begin_wait_seconds", "How long BEGIN took in a delivery, waits for a connection included.", wait),
		identityWait:      histogram("inbox_identity_wait_seconds", "How long the insert of the identity took in a delivery, waits for another holder included.", wait),
		transaction:       histogram("inbox_transaction_seconds", "How long transactions were open in a delivery.", wait),
		distance:          histogram("inbox_redelivery_distance_seconds", "Age of the identity at the time of a duplicate.", config.DistanceBuckets),
		distanceMax:       gauge("inbox_redelivery_distance_max_seconds", "Largest redelivery distance since the start of the process.", "consumer"),
		removed:           counter("inbox_retention_removed_total", "Rows that retention has removed.", "consumer"),
		examined:          counter("inbox_retention_examined_total", "Rows that retention has examined.", "consumer"),
		batch:             histogram("inbox_retention_batch_seconds", "How long batches of retention took.", wait),
		events:            counter("inbox_deferred_messages_total", "What happened to messages of a queue.", "queue", "consumer", "outcome"),
	}
}

// all are the collectors to register.
func (f *families) all(horizon time.Duration) []prometheus.Collector {
	collectors := []prometheus.Collector{
		f.deliveries, f.failures, f.mismatches, f.conflicts, f.uncertainCommits, f.earlyAcks, f.inFlightElsewhere, f.inFlight, f.distanceMax,
		f.beginWait, f.identityWait, f.transaction, f.distance, f.removed, f.examined, f.batch, f.events,
	}
	if horizon > 0 {
		gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "inbox_retention_horizon_seconds", Help: "How long retention keeps identities."})
		gauge.Set(horizon.Seconds())
		collectors = append(collectors, gauge)
	}
	return collectors
}

// label makes any bytes a value that Prometheus takes: those that are not UTF-8 are written as \xff.
func label(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	var valid strings.Builder
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && size == 1 {
			fmt.Fprintf(&valid, `\x%02x`, name[0])
		} else {
			valid.WriteRune(r)
		}
		name = name[size:]
	}
	return valid.String()
}

func queueLabel(queue deferred.Queue) string {
	if queue == deferred.Outgoing {
		return "outgoing"
	}
	return "pending"
}
