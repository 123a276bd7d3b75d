package deferred

import (
	"sync"

	"github.com/watermill-inbox/inbox"
)

// Wakeup connects Receivers with the Subscribers of the same process, so that a stored message is claimed at once instead of at
// the next poll. One Wakeup may serve any number of both; who is woken for nothing finds nothing. The zero value is ready to use, and it
// is safe for concurrent use.
type Wakeup struct {
	mu        sync.Mutex
	listeners map[chan struct{}]struct{}
}

// Wake makes the Subscribers look for messages now. It never blocks. Call it for events of your own too, such as a notification that came from the
// database.
func (w *Wakeup) Wake() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for listener := range w.listeners {
		select {
		case listener <- struct{}{}:
		default: // it is awake already
		}
	}
}

// ObserveDelivery wakes the Subscribers when an Inbox has committed a message, and with it what its handler put into an Outbox. It makes the Wakeup an
// inbox.Observer.
func (w *Wakeup) ObserveDelivery(report inbox.DeliveryReport) {
	if report.Outcome == inbox.Processed {
		w.Wake()
	}
}

var _ inbox.Observer = (*Wakeup)(nil)

// listen returns a channel that receives after Wake, and a function that ends it.
func (w *Wakeup) listen() (<-chan struct{}, func()) {
	if w == nil {
		return nil, func() {}
	}
	listener := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listeners == nil {
		w.listeners = map[chan struct{}]struct{}{}
	}
	w.listeners[listener] = struct{}{}
	return listener, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.listeners, listener)
	}
}
