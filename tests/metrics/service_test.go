package metrics

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/metrics"
	"github.com/watermill-inbox/inbox/retention"
)

// scripted fails as the id of a message says.
func scripted(msg *message.Message) error {
	if strings.HasPrefix(msg.UUID, "fails") {
		return ErrOutOfStock
	}
	return nil
}

// newService makes a Service that asks the database at every scrape.
func newService(t testing.TB, d *database) *Service {
	t.Helper()
	s, err := New(d.pool, d.schema, scripted, metrics.BacklogConfig{CacheTime: time.Nanosecond, Timeout: 30 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// exercise makes every metric have a value.
func (s *Service) exercise(t *testing.T, d *database) {
	t.Helper()
	require.NoError(t, s.Deliver("m1", "{}"))
	require.NoError(t, s.Deliver("m1", "{}"))
	require.Error(t, s.Deliver("m1", "other"))
	require.ErrorIs(t, s.Deliver("fails", "{}"), ErrOutOfStock)
	require.NoError(t, s.Receive("m1", "m2", "fails"))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	require.Eventually(t, func() bool {
		return d.number(t, "SELECT COUNT(*) FROM inbox_pending") == 1 && d.number(t, "SELECT COUNT(*) FROM inbox_pending WHERE state = 4") == 1
	}, 30*time.Second, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-ended)
	s.Observer.ObserveBatch(retention.Batch{Consumer: Direct, Examined: 10, Removed: 5, Duration: time.Second})
}

// families are what is exposed, by name.
type families map[string]*dto.MetricFamily

// scrape returns what is exposed, by name.
func (s *Service) scrape(t testing.TB) families {
	t.Helper()
	gathered, err := s.Registry.Gather()
	require.NoError(t, err)
	found := families{}
	for _, family := range gathered {
		found[family.GetName()] = family
	}
	return found
}

// value returns that of the one series with these values of labels, and -1 if there is none.
func value(exposed families, name string, labels ...string) float64 {
	for _, m := range exposed[name].GetMetric() {
		found := 0
		for _, label := range m.GetLabel() {
			for _, want := range labels {
				if label.GetValue() == want {
					found++
				}
			}
		}
		if found == len(labels) {
			return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return -1
}

// TestServiceIsWatched compares what is exposed with what is stored.
func TestServiceIsWatched(t *testing.T) {
	for name := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, name)
			s := newService(t, d)
			s.exercise(t, d)
			exposed := s.scrape(t)
			processed := value(exposed, "inbox_deliveries_total", Direct, "processed") + value(exposed, "inbox_deliveries_total", Deferred, "processed")
			require.EqualValues(t, d.number(t, "SELECT COUNT(*) FROM inbox_messages"), processed)
			require.EqualValues(t, d.number(t, "SELECT COUNT(*) FROM inbox_pending WHERE state = 4"), value(exposed, "inbox_backlog_messages", Deferred, "dead"))
			require.EqualValues(t, 1, value(exposed, "inbox_deliveries_total", Direct, "duplicate"))
			require.EqualValues(t, 1, value(exposed, "inbox_mismatches_total", Direct))
			require.EqualValues(t, 1, value(exposed, "inbox_failures_total", Direct, "handler"))
			require.EqualValues(t, 3, value(exposed, "inbox_failures_total", Deferred, "handler"))
			require.EqualValues(t, 2, value(exposed, "inbox_deferred_messages_total", Deferred, "completed"))
			require.EqualValues(t, 2, value(exposed, "inbox_deferred_messages_total", Deferred, "retried"))
			require.EqualValues(t, 1, value(exposed, "inbox_deferred_messages_total", Deferred, "died"))
			require.EqualValues(t, 0, value(exposed, "inbox_in_flight", Direct))
			require.EqualValues(t, 1, value(exposed, "inbox_backlog_up"))

			// The database goes away: the values stay, and say that they are old.
			d.close()
			exposed = s.scrape(t)
			require.EqualValues(t, 0, value(exposed, "inbox_backlog_up"))
			require.EqualValues(t, 1, value(exposed, "inbox_backlog_messages", Deferred, "dead"))
		})
	}
}
