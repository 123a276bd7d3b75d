package metrics

import (
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-inbox/inbox/deferred"
)

// values are what a Backlog knows.
type values struct {
	up        bool
	took      time.Duration
	read      time.Time                  // zero: never
	truncated bool                       // some number is a lower bound
	consumers map[string]consumerBacklog // by label; replaced, not changed
}

// consumerBacklog is the sum over the topics of a consumer.
type consumerBacklog struct {
	states          [len(states)]int64 // by deferred.State
	oldest, overdue time.Duration
}

// states of a message, whose numbers are their places in consumerBacklog.states.
var states = [...]deferred.State{deferred.StatePending, deferred.StateSuspect, deferred.StateClaimed, deferred.StateWaiting, deferred.StateDead, deferred.StateStripped}

// set takes over the result of a query. A consumer without messages goes to zero and stays, as long as there are not too many of them.
func (v *values) set(counts []deferred.Count, complete bool, config BacklogConfig) {
	consumers := map[string]consumerBacklog{}
	if len(v.consumers) <= deferred.MaxCountGroups {
		for name := range maps.Keys(v.consumers) {
			consumers[name] = consumerBacklog{}
		}
	}
	for _, name := range config.Consumers {
		consumers[label(name)] = consumerBacklog{}
	}
	v.truncated = !complete
	for _, count := range counts {
		c := consumers[label(count.Consumer)]
		for state, n := range [...]int64{count.Pending, count.Suspect, count.Claimed, count.Waiting, count.Dead, count.Stripped} {
			c.states[state] += n
			v.truncated = v.truncated || n >= int64(config.CountLimit)
		}
		c.oldest, c.overdue = max(c.oldest, count.Oldest), max(c.overdue, count.Overdue)
		consumers[label(count.Consumer)] = c
	}
	v.consumers, v.read = consumers, time.Now()
}

// collect exposes the values. Before the first successful query it says only that there are none.
func (v *values) collect(d descs, metrics chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(d.up, number(v.up))
	gauge(d.took, v.took.Seconds())
	if v.read.IsZero() {
		return
	}
	gauge(d.read, float64(v.read.UnixMilli())/1000)
	gauge(d.truncated, number(v.truncated))
	for name, c := range v.consumers {
		for n, state := range states {
			gauge(d.messages, float64(c.states[n]), name, state.String())
		}
		gauge(d.oldest, c.oldest.Seconds(), name)
		gauge(d.overdue, c.overdue.Seconds(), name)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// descs are the metrics of a Backlog.
type descs struct {
	messages, oldest, overdue, truncated, up, read, took *prometheus.Desc
}

func newDescs(queue deferred.Queue) descs {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("inbox_backlog_"+name, help, labels, prometheus.Labels{"queue": queueLabel(queue)})
	}
	return descs{
		messages:  desc("messages", "Messages in the queue, counted up to a limit.", "consumer", "state"),
		oldest:    desc("oldest_seconds", "Age of the oldest message that is not dead.", "consumer"),
		overdue:   desc("overdue_seconds", "For how long nobody has attended to a message whose time has come.", "consumer"),
		truncated: desc("truncated", "1 if some number of messages is a lower bound."),
		up:        desc("up", "1 if the last query succeeded."),
		read:      desc("updated_timestamp_seconds", "When the values were read."),
		took:      desc("query_seconds", "How long the last query took."),
	}
}

func (d descs) describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{d.messages, d.oldest, d.overdue, d.truncated, d.up, d.read, d.took} {
		descs <- desc
	}
}
