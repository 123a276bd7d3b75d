package metrics_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/metrics"
)

// script is a store that answers as the test says.
type script struct {
	mu     sync.Mutex
	asked  int
	answer func(ctx context.Context) ([]deferred.Count, bool, error)
}

func (s *script) CountUpTo(ctx context.Context, _ int) ([]deferred.Count, bool, error) {
	s.mu.Lock()
	s.asked++
	answer := s.answer
	s.mu.Unlock()
	return answer(ctx)
}

func (s *script) says(answer func(ctx context.Context) ([]deferred.Count, bool, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *script) times() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func counted(counts ...deferred.Count) func(context.Context) ([]deferred.Count, bool, error) {
	return func(context.Context) ([]deferred.Count, bool, error) { return counts, true, nil }
}

func fails(context.Context) ([]deferred.Count, bool, error) {
	return nil, false, errors.New("no route")
}

func newBacklog(t *testing.T, store metrics.Counter, config metrics.BacklogConfig) (*metrics.Backlog, *prometheus.Registry) {
	t.Helper()
	backlog, err := metrics.NewBacklog(store, config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, backlog.Close()) })
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(backlog))
	return backlog, registry
}

var backlogMetrics = []string{"inbox_backlog_messages", "inbox_backlog_oldest_seconds", "inbox_backlog_overdue_seconds", "inbox_backlog_truncated", "inbox_backlog_up"}

// always makes every scrape ask.
const always = time.Nanosecond

func TestBacklogOfAllTopics(t *testing.T) {
	store := &script{answer: counted(
		deferred.Count{Consumer: "billing", Topic: "orders", Pending: 1, Suspect: 2, Claimed: 3, Waiting: 4, Dead: 5, Oldest: time.Minute, Overdue: 2 * time.Second},
		deferred.Count{Consumer: "billing", Topic: "returns", Pending: 10, Oldest: time.Second, Overdue: time.Second},
		deferred.Count{Consumer: "\xff", Topic: "orders", Dead: 1},
		deferred.Count{Consumer: `\xff`, Topic: "orders", Dead: 1},
	)}
	_, registry := newBacklog(t, store, metrics.BacklogConfig{CacheTime: always, Consumers: []string{"mail"}})
	requireMetrics(t, registry, `inbox_backlog_messages{consumer="\\xff",queue="pending",state="dead"} 2
inbox_backlog_messages{consumer="billing",queue="pending",state="claimed"} 3
inbox_backlog_messages{consumer="billing",queue="pending",state="dead"} 5
inbox_backlog_messages{consumer="billing",queue="pending",state="pending"} 11
inbox_backlog_messages{consumer="billing",queue="pending",state="suspect"} 2
inbox_backlog_messages{consumer="billing",queue="pending",state="waiting"} 4
inbox_backlog_oldest_seconds{consumer="billing",queue="pending"} 60
inbox_backlog_overdue_seconds{consumer="billing",queue="pending"} 2
inbox_backlog_up{queue="pending"} 1`, backlogMetrics...)

	// What is gone is zero, not missing.
	store.says(counted())
	requireMetrics(t, registry, `inbox_backlog_up{queue="pending"} 1`, backlogMetrics...)
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == "inbox_backlog_messages" {
			require.Len(t, family.GetMetric(), 6*3, "billing, \\xff and mail in six states")
		}
	}
}

func TestBacklogBeyondTheLimitIsTruncated(t *testing.T) {
	store := &script{answer: counted(deferred.Count{Consumer: "billing", Pending: 99})}
	_, registry := newBacklog(t, store, metrics.BacklogConfig{CacheTime: always, CountLimit: 100, Queue: deferred.Outgoing})
	requireMetrics(t, registry, "", "inbox_backlog_truncated")
	store.says(counted(deferred.Count{Consumer: "billing", Pending: 100}))
	requireMetrics(t, registry, `inbox_backlog_truncated{queue="outgoing"} 1`, "inbox_backlog_truncated")
	store.says(func(context.Context) ([]deferred.Count, bool, error) { return nil, false, nil })
	requireMetrics(t, registry, `inbox_backlog_truncated{queue="outgoing"} 1`, "inbox_backlog_truncated")
}

func TestBacklogServesTheLastValuesWhileTheDatabaseIsDown(t *testing.T) {
	store := &script{answer: fails}
	logger := watermill.NewCaptureLogger()
	_, registry := newBacklog(t, store, metrics.BacklogConfig{CacheTime: always, Logger: logger})
	requireMetrics(t, registry, "", backlogMetrics...)
	require.Len(t, logger.Captured()[watermill.ErrorLogLevel], 1)

	const up = "\n" + `inbox_backlog_up{queue="pending"} 1`
	const seven = `inbox_backlog_messages{consumer="billing",queue="pending",state="pending"} 7`
	store.says(counted(deferred.Count{Consumer: "billing", Pending: 7}))
	requireMetrics(t, registry, seven+up, backlogMetrics...)
	store.says(fails)
	requireMetrics(t, registry, seven, backlogMetrics...)
	store.says(counted(deferred.Count{Consumer: "billing", Pending: 7}))
	requireMetrics(t, registry, seven+up, backlogMetrics...)
}

func TestBacklogAsksOncePerCacheTime(t *testing.T) {
	for name, answer := range map[string]func(context.Context) ([]deferred.Count, bool, error){"success": counted(), "failure": fails} {
		t.Run(name, func(t *testing.T) {
			store := &script{answer: answer}
			_, registry := newBacklog(t, store, metrics.BacklogConfig{CacheTime: time.Hour})
			for range 5 {
				_, err := registry.Gather()
				require.NoError(t, err)
			}
			require.Equal(t, 1, store.times())
		})
	}
}

// A query that is under way is waited for by all scrapes, and none of them asks again.
func TestBacklogAsksOnceAtATime(t *testing.T) {
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	store := &script{answer: func(context.Context) ([]deferred.Count, bool, error) {
		asked <- struct{}{}
		<-answer
		return []deferred.Count{{Consumer: "billing", Pending: 7}}, true, nil
	}}
	_, registry := newBacklog(t, store, metrics.BacklogConfig{CacheTime: time.Hour, Timeout: time.Minute})
	var scrapes sync.WaitGroup
	for range 10 {
		scrapes.Add(1)
		go func() {
			defer scrapes.Done()
			requireMetrics(t, registry, `inbox_backlog_messages{consumer="billing",queue="pending",state="pending"} 7`, "inbox_backlog_messages")
		}()
	}
	<-asked
	close(answer)
	scrapes.Wait()
	require.Equal(t, 1, store.times())
}

// A driver may ignore the end of its context. A scrape must not.
func TestBacklogDoesNotHangWithItsDriver(t *testing.T) {
	released := make(chan struct{})
	var ended atomic.Bool
	store := &script{answer: counted(deferred.Count{Consumer: "billing", Pending: 7})}
	backlog, registry := newBacklog(t, store, metrics.BacklogConfig{CacheTime: always, Timeout: 20 * time.Millisecond})
	const seven = `inbox_backlog_messages{consumer="billing",queue="pending",state="pending"} 7`
	requireMetrics(t, registry, seven+"\n"+`inbox_backlog_up{queue="pending"} 1`, backlogMetrics...)
	store.says(func(context.Context) ([]deferred.Count, bool, error) {
		<-released
		ended.Store(true)
		return counted(deferred.Count{Consumer: "billing", Pending: 7})(context.Background())
	})
	for range 3 {
		requireMetrics(t, registry, seven, backlogMetrics...)
	}
	require.Equal(t, 2, store.times(), "a second query while the first one hangs")

	closing := make(chan struct{})
	go func() { <-closing; close(released) }()
	close(closing)
	require.NoError(t, backlog.Close())
	require.True(t, ended.Load(), "Close did not wait for the query")
	requireMetrics(t, registry, seven, backlogMetrics...) // and nobody asks any more
	require.Equal(t, 2, store.times())
}

func TestCloseEndsAQuery(t *testing.T) {
	asked := make(chan struct{})
	store := &script{answer: func(ctx context.Context) ([]deferred.Count, bool, error) {
		close(asked)
		<-ctx.Done()
		return nil, false, ctx.Err()
	}}
	logger := watermill.NewCaptureLogger()
	backlog, registry := newBacklog(t, store, metrics.BacklogConfig{Timeout: time.Hour, Logger: logger})
	scraped := make(chan struct{})
	go func() { defer close(scraped); _, _ = registry.Gather() }()
	<-asked
	require.NoError(t, backlog.Close())
	<-scraped
	require.Empty(t, logger.Captured()[watermill.ErrorLogLevel], "a shutdown is no failure")
}

func TestNewBacklogRefuses(t *testing.T) {
	_, err := metrics.NewBacklog((*deferred.Store)(nil), metrics.BacklogConfig{})
	require.ErrorContains(t, err, "nil")
	_, err = metrics.NewBacklog(&script{}, metrics.BacklogConfig{Queue: 7, CacheTime: -1, Timeout: -1, CountLimit: -1})
	for _, field := range []string{"Queue", "CacheTime", "Timeout", "CountLimit"} {
		require.ErrorContains(t, err, field)
	}
}
