package metrics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/metrics"
	"github.com/watermill-inbox/inbox/retention"
)

func newObserver(t testing.TB, config metrics.ObserverConfig) (*metrics.Observer, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	observer, err := metrics.NewObserver(registry, config)
	require.NoError(t, err)
	return observer, registry
}

// requireMetrics compares the series of some metrics with want, one a line, without those that are zero.
func requireMetrics(t testing.TB, gatherer prometheus.Gatherer, want string, names ...string) {
	t.Helper()
	families, err := gatherer.Gather()
	require.NoError(t, err)
	var got []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := make([]string, len(m.GetLabel()))
			for n, label := range m.GetLabel() {
				labels[n] = fmt.Sprintf("%s=%q", label.GetName(), label.GetValue())
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			for _, name := range names {
				if name == family.GetName() && value != 0 {
					got = append(got, fmt.Sprintf("%s{%s} %v", name, strings.Join(labels, ","), value))
				}
			}
		}
	}
	require.Equal(t, strings.Fields(strings.ReplaceAll(want, " ", "\x00")), strings.Fields(strings.ReplaceAll(strings.Join(got, "\n"), " ", "\x00")))
}

func TestDeliveriesAreCounted(t *testing.T) {
	observer, registry := newObserver(t, metrics.ObserverConfig{})
	deliver := func(reports ...inbox.DeliveryReport) {
		for _, report := range reports {
			report.Consumer = "billing"
			observer.ObserveStart(report.Consumer)
			observer.ObserveDelivery(report)
		}
	}
	deliver(
		inbox.DeliveryReport{Outcome: inbox.Processed, BeginWait: 1, IdentityWait: 1, InTransaction: 1},
		inbox.DeliveryReport{Outcome: inbox.Processed, Conflicts: 2, UncertainCommits: 3, ResolvedCommitted: 1, ResolvedRolledBack: 2, InTransaction: 1},
		inbox.DeliveryReport{Outcome: inbox.Duplicate, RedeliveryAge: 90 * time.Second, InTransaction: 1},
		inbox.DeliveryReport{Outcome: inbox.Duplicate, RedeliveryAge: 30 * time.Second, InTransaction: 1},
		inbox.DeliveryReport{Outcome: inbox.Duplicate, Mismatch: true, InTransaction: 1}, // as OnMismatch wants it
		inbox.DeliveryReport{Stage: inbox.StageCompare, Mismatch: true, Err: &inbox.MismatchError{}, InTransaction: 1},
		inbox.DeliveryReport{Stage: inbox.StageInsert, Err: fmt.Errorf("insert: %w", inbox.ErrInFlight), InTransaction: 1},
		inbox.DeliveryReport{Stage: inbox.StageCommit, Err: inbox.ErrCommitUncertain, UncertainCommits: 2, ResolvedRolledBack: 1, InTransaction: 1},
		inbox.DeliveryReport{Stage: inbox.StageHandler, Err: errors.New("no stock"), EarlyAck: true, InTransaction: 1},
		inbox.DeliveryReport{Stage: inbox.StageHandler, InTransaction: 1}, // a panic
		inbox.DeliveryReport{Stage: inbox.StageIdentity, Err: inbox.ErrNoIdentity},
	)
	observer.ObserveStart("billing")
	observer.ObserveDelivery(inbox.DeliveryReport{Stage: inbox.StageIdentity, Err: inbox.ErrNoConsumer})

	requireMetrics(t, registry, `inbox_begin_wait_seconds{consumer="billing"} 10
inbox_conflicts_total{consumer="billing"} 2
inbox_deliveries_total{consumer="",outcome="failed"} 1
inbox_deliveries_total{consumer="billing",outcome="duplicate"} 3
inbox_deliveries_total{consumer="billing",outcome="failed"} 6
inbox_deliveries_total{consumer="billing",outcome="processed"} 2
inbox_early_acks_total{consumer="billing"} 1
inbox_failures_total{consumer="",stage="identity"} 1
inbox_failures_total{consumer="billing",stage="commit"} 1
inbox_failures_total{consumer="billing",stage="compare with stored identity"} 1
inbox_failures_total{consumer="billing",stage="handler"} 2
inbox_failures_total{consumer="billing",stage="identity"} 1
inbox_failures_total{consumer="billing",stage="insert identity"} 1
inbox_identity_wait_seconds{consumer="billing"} 10
inbox_in_flight{consumer="billing"} 1
inbox_in_flight_elsewhere_total{consumer="billing"} 1
inbox_mismatches_total{consumer="billing"} 2
inbox_redelivery_distance_max_seconds{consumer="billing"} 90
inbox_redelivery_distance_seconds{consumer="billing"} 2
inbox_transaction_seconds{consumer="billing"} 10
inbox_uncertain_commits_total{consumer="billing",outcome="committed"} 1
inbox_uncertain_commits_total{consumer="billing",outcome="rolled back"} 3
inbox_uncertain_commits_total{consumer="billing",outcome="unresolved"} 1`, observerMetrics...)
}

// observerMetrics are all that an Observer exposes.
var observerMetrics = []string{
	"inbox_deliveries_total", "inbox_failures_total", "inbox_mismatches_total", "inbox_conflicts_total", "inbox_uncertain_commits_total", "inbox_early_acks_total",
	"inbox_in_flight_elsewhere_total", "inbox_in_flight", "inbox_begin_wait_seconds", "inbox_identity_wait_seconds", "inbox_transaction_seconds",
	"inbox_redelivery_distance_seconds", "inbox_redelivery_distance_max_seconds", "inbox_retention_horizon_seconds", "inbox_retention_removed_total",
	"inbox_retention_examined_total", "inbox_retention_batch_seconds", "inbox_deferred_messages_total",
}

func TestEventsAndRemovalsAreCounted(t *testing.T) {
	observer, registry := newObserver(t, metrics.ObserverConfig{Horizon: 24 * time.Hour})
	for n, event := range deferred.Events() {
		observer.ObserveEvent(deferred.EventReport{Consumer: "billing", Topic: "orders", Event: event, Messages: n + 1})
	}
	observer.ObserveEvent(deferred.EventReport{Consumer: "relay", Topic: "orders", Queue: deferred.Outgoing, Event: deferred.Completed, Messages: 5})
	observer.ObserveBatch(retention.Batch{Consumer: "billing", Examined: 300, Removed: 480, Duration: time.Second})
	observer.ObserveBatch(retention.Batch{Consumer: "billing", DryRun: true, Examined: 200, Removed: 100})
	requireMetrics(t, registry, `inbox_deferred_messages_total{consumer="billing",outcome="claimed",queue="pending"} 1
inbox_deferred_messages_total{consumer="billing",outcome="completed",queue="pending"} 2
inbox_deferred_messages_total{consumer="billing",outcome="deserted",queue="pending"} 7
inbox_deferred_messages_total{consumer="billing",outcome="died",queue="pending"} 5
inbox_deferred_messages_total{consumer="billing",outcome="given back",queue="pending"} 4
inbox_deferred_messages_total{consumer="billing",outcome="lease lost",queue="pending"} 6
inbox_deferred_messages_total{consumer="billing",outcome="retried",queue="pending"} 3
inbox_deferred_messages_total{consumer="relay",outcome="completed",queue="outgoing"} 5
inbox_retention_batch_seconds{consumer="billing"} 2
inbox_retention_examined_total{consumer="billing"} 500
inbox_retention_horizon_seconds{} 86400
inbox_retention_removed_total{consumer="billing"} 480`, observerMetrics...)
}

// Prometheus refuses a whole scrape because of one label that is not UTF-8.
func TestNamesThatAreNotUTF8(t *testing.T) {
	observer, registry := newObserver(t, metrics.ObserverConfig{Consumers: []string{"\xff"}})
	for _, name := range []string{"\xff", `\xff`, "ä\x80\ufffd"} { // the first two share a series
		observer.ObserveDelivery(inbox.DeliveryReport{Consumer: name, Outcome: inbox.Processed})
		observer.ObserveEvent(deferred.EventReport{Consumer: name, Event: deferred.Claimed, Messages: 1})
		observer.ObserveBatch(retention.Batch{Consumer: name, Examined: 1, Removed: 1})
	}
	requireMetrics(t, registry, `inbox_deferred_messages_total{consumer="\\xff",outcome="claimed",queue="pending"} 2
inbox_deferred_messages_total{consumer="ä\\x80`+"\ufffd"+`",outcome="claimed",queue="pending"} 1
inbox_deliveries_total{consumer="\\xff",outcome="processed"} 2
inbox_deliveries_total{consumer="ä\\x80`+"\ufffd"+`",outcome="processed"} 1
inbox_retention_removed_total{consumer="\\xff"} 2
inbox_retention_removed_total{consumer="ä\\x80`+"\ufffd"+`"} 1`, "inbox_deliveries_total", "inbox_deferred_messages_total", "inbox_retention_removed_total")
}

// rate and increase see nothing of the first failure if its series begins with it.
func TestConsumersStartAtZero(t *testing.T) {
	observer, registry := newObserver(t, metrics.ObserverConfig{Consumers: []string{"billing", "mail"}})
	observer.ObserveEvent(deferred.EventReport{Consumer: "mail", Event: deferred.Claimed, Messages: 1})
	families, err := registry.Gather()
	require.NoError(t, err)
	series := map[string]int{}
	for _, family := range families {
		series[family.GetName()] = len(family.GetMetric())
	}
	require.Equal(t, 2*3, series["inbox_deliveries_total"])
	require.Equal(t, 2*9, series["inbox_failures_total"])
	require.Equal(t, 2, series["inbox_mismatches_total"])
	require.Equal(t, 2*3, series["inbox_uncertain_commits_total"])
	require.Equal(t, 7, series["inbox_deferred_messages_total"])
}

// full is a registry that has no room for one of the metrics.
type full struct {
	registered map[prometheus.Collector]bool
	room       int
}

func (f *full) Register(c prometheus.Collector) error {
	if len(f.registered) == f.room {
		return errors.New("full")
	}
	f.registered[c] = true
	return nil
}

func (f *full) MustRegister(...prometheus.Collector) { panic("not used") }

func (f *full) Unregister(c prometheus.Collector) bool {
	delete(f.registered, c)
	return true
}

func TestNewObserverRefuses(t *testing.T) {
	registry := prometheus.NewRegistry()
	_, err := metrics.NewObserver(registry, metrics.ObserverConfig{})
	require.NoError(t, err)
	_, err = metrics.NewObserver(registry, metrics.ObserverConfig{})
	require.ErrorAs(t, err, &prometheus.AlreadyRegisteredError{})

	room := &full{map[prometheus.Collector]bool{}, len(observerMetrics) - 1}
	_, err = metrics.NewObserver(room, metrics.ObserverConfig{Horizon: time.Hour})
	require.ErrorContains(t, err, "full")
	require.Empty(t, room.registered, "metrics that nobody counts are left behind")

	_, err = metrics.NewObserver(nil, metrics.ObserverConfig{})
	require.ErrorContains(t, err, "registerer is nil")
	_, err = metrics.NewObserver(prometheus.NewRegistry(), metrics.ObserverConfig{Horizon: -1, WaitBuckets: []float64{1, 1}, DistanceBuckets: []float64{2, 1}})
	for _, field := range []string{"Horizon", "WaitBuckets", "DistanceBuckets"} {
		require.ErrorContains(t, err, field)
	}
}

func TestDeliveriesAllocateNothing(t *testing.T) {
	observer, _ := newObserver(t, metrics.ObserverConfig{})
	report := inbox.DeliveryReport{Consumer: "billing", Outcome: inbox.Duplicate, RedeliveryAge: time.Second, InTransaction: time.Millisecond, Conflicts: 1, UncertainCommits: 1}
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		observer.ObserveStart("billing")
		observer.ObserveDelivery(report)
		observer.ObserveEvent(deferred.EventReport{Consumer: "billing", Event: deferred.Claimed, Messages: 1})
	}))
}

func BenchmarkObserver(b *testing.B) {
	observer, _ := newObserver(b, metrics.ObserverConfig{})
	report := inbox.DeliveryReport{Consumer: "billing", Outcome: inbox.Processed, InTransaction: time.Millisecond}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			observer.ObserveStart("billing")
			observer.ObserveDelivery(report)
		}
	})
}
