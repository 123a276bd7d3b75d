package inboxtest

import (
	"sync"

	"github.com/watermill-inbox/inbox"
)

// reports is an Observer that keeps what it is told.
type reports struct {
	mu     sync.Mutex
	all    []inbox.DeliveryReport
	starts []string // consumers
}

var _ inbox.StartObserver = (*reports)(nil)

// ObserveStart is for the Inbox.
func (r *reports) ObserveStart(consumer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts = append(r.starts, consumer)
}

// announced returns how many deliveries of a consumer began.
func (r *reports) announced(consumer string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, start := range r.starts {
		if start == consumer {
			n++
		}
	}
	return n
}

// ObserveDelivery is for the Inbox.
func (r *reports) ObserveDelivery(report inbox.DeliveryReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, report)
}

// ended returns how many deliveries ended.
func (r *reports) ended() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

func (r *reports) last() inbox.DeliveryReport {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return inbox.DeliveryReport{}
	}
	return r.all[len(r.all)-1]
}

// conflicts is the sum over all deliveries.
func (r *reports) conflicts() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, report := range r.all {
		n += report.Conflicts
	}
	return n
}
