package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/watermill-inbox/inbox/deferred"
)

// queueConsumer is a consumer of one queue.
type queueConsumer struct {
	queue    deferred.Queue
	consumer string
}

// ObserveEvent is for a deferred.Subscriber. All events of its consumer are exposed from the first one on, which is a claim, so that Prometheus sees the first
// lost lease as an increase.
func (o *Observer) ObserveEvent(report deferred.EventReport) {
	if counter := o.eventsOf(queueConsumer{report.Queue, report.Consumer})[report.Event]; counter != nil {
		counter.Add(float64(report.Messages))
	}
}

func (o *Observer) eventsOf(key queueConsumer) map[deferred.Event]prometheus.Counter {
	o.mu.RLock()
	events := o.events[key]
	o.mu.RUnlock()
	if events != nil {
		return events
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if events = o.events[key]; events == nil {
		events = map[deferred.Event]prometheus.Counter{}
		for _, event := range deferred.Events() {
			events[event] = o.families.events.WithLabelValues(queueLabel(key.queue), label(key.consumer), event.String())
		}
		o.events[key] = events
	}
	return events
}
