package deferred

import "fmt"

// Event is what happened to messages of a queue.
type Event int

const (
	// Claimed: they are with this worker now. One of the other events follows for each, here or, if this worker disappears, at another one.
	Claimed Event = iota + 1

	// Completed: their rows are gone, because the effect is committed or the handler has acked.
	Completed

	// Retried: they failed, and wait for their next attempt.
	Retried

	// GivenBack: they are pending again, and the attempt does not count: a conflict of the database, a shutdown.
	GivenBack

	// Died: they are dead until an operator redrives or discards them.
	Died

	// LeaseLost: this worker could not keep its claim, and its handler's context has ended. The message is claimed again, here or elsewhere.
	LeaseLost

	// Deserted: another worker disappeared while it held them, and they are suspect now.
	Deserted
)

// Events returns all events.
func Events() []Event {
	return []Event{Claimed, Completed, Retried, GivenBack, Died, LeaseLost, Deserted}
}

// String returns the event in lower case, "none" for the zero value.
func (e Event) String() string {
	switch e {
	case Claimed:
		return "claimed"
	case Completed:
		return "completed"
	case Retried:
		return "retried"
	case GivenBack:
		return "given back"
	case Died:
		return "died"
	case LeaseLost:
		return "lease lost"
	case Deserted:
		return "deserted"
	default:
		return "none"
	}
}

// EventReport says what happened to how many messages.
type EventReport struct {
	Consumer string
	Topic    string
	Queue    Queue
	Event    Event
	Messages int
}

// Observer is told what becomes of the messages of a Subscriber, for metrics. Its method runs in the goroutines of the Subscriber, after the transaction
// that the event is about, so it must be fast, and safe for concurrent use. A panic of it is logged and changes nothing for the message.
//
// Events are for trends and alerts, not for books: one whose COMMIT got no answer may be missing. Store counts what is in the queue.
type Observer interface {
	ObserveEvent(report EventReport)
}

// observe tells the Observer.
func (s *subscription) observe(event Event, messages int) {
	if s.config.Observer == nil || messages == 0 {
		return
	}
	defer func() {
		if cause := recover(); cause != nil {
			s.logger.Error("Observer panicked", fmt.Errorf("%v", cause), s.fields)
		}
	}()
	s.config.Observer.ObserveEvent(EventReport{s.config.Consumer, s.topic, s.config.Queue, event, messages})
}
