package inbox

import (
	"time"
)

// Outcome is what became of a delivery.
type Outcome int

const (
	// Processed: the effect and the identity are committed.
	Processed Outcome = iota + 1

	// Duplicate: the identity was committed before; the handler's effect was not committed again.
	Duplicate

	// Skipped: Config.Skip said that the message needs no protection; the handler ran without a transaction.
	Skipped
)

// String returns the outcome in lower case, "none" for the zero value.
func (o Outcome) String() string {
	switch o {
	case Processed:
		return "processed"
	case Duplicate:
		return "duplicate"
	case Skipped:
		return "skipped"
	default:
		return "none"
	}
}

// Observer is told about deliveries, for metrics. Its methods run in the delivery's goroutine, so they must be fast, and safe for
// concurrent use. A panic of theirs is logged and changes nothing for the message.
type Observer interface {
	// ObserveDelivery is called once at the end of every delivery that was not skipped.
	ObserveDelivery(report DeliveryReport)
}

// StartObserver is an optional interface of an Observer, for gauges of what is in flight.
type StartObserver interface {
	// ObserveStart is called at the beginning of a delivery, as soon as its consumer is known. ObserveDelivery follows at its end, with the
	// same consumer; where a report has no consumer, the delivery was not announced.
	ObserveStart(consumer string)
}

// DeliveryReport describes one finished delivery.
type DeliveryReport struct {
	// Consumer is empty if the delivery failed before it was known.
	Consumer string

	// Identity is empty if the delivery failed before it was known. It is for logs and traces, not for the labels of metrics.
	Identity Identity

	// Outcome is the zero value if the delivery failed or its handler panicked.
	Outcome Outcome

	// Err is the error of a failed delivery.
	Err error

	// Stage is where the delivery failed, empty if it did not.
	Stage Stage

	// Mismatch tells that the identity was processed with other content, whatever OnMismatch made of it.
	Mismatch bool

	// Duration is the time from the start of the delivery to its end.
	Duration time.Duration

	// BeginWait is how long BEGIN took in all attempts: the waits for a connection of the pool and, where there is one writer, for its transactions.
	BeginWait time.Duration

	// IdentityWait is how long the inserts of the identity took in all attempts. While another transaction holds the identity they wait for its end;
	// otherwise this is one round trip.
	IdentityWait time.Duration

	// InTransaction is how long transactions were open, from BEGIN to the end of COMMIT or ROLLBACK, all attempts together. It includes
	// IdentityWait, not BeginWait.
	InTransaction time.Duration

	// HandlerRuns counts the runs of the handler in this delivery.
	HandlerRuns int

	// Conflicts counts the transactions that the database gave up in favour of others.
	Conflicts int

	// UncertainCommits counts the COMMITs that got no clear answer.
	UncertainCommits int

	// ResolvedCommitted and ResolvedRolledBack count those of them that were found out to have happened, and not to have. One more than these at
	// most is uncertain: the last, and then Err is ErrCommitUncertain.
	ResolvedCommitted, ResolvedRolledBack int

	// EarlyAck tells that the message was acked before its transaction was committed.
	EarlyAck bool

	// RedeliveryAge is the age of the identity at the time of a duplicate, by the database's clock, in whole seconds. The
	// largest value seen over time is the least that retention must keep.
	RedeliveryAge time.Duration
}

type nopObserver struct{}

func (nopObserver) ObserveDelivery(DeliveryReport) {}
