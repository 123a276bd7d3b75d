package retention

import (
	"math"
	"time"
)

// Needs declares how old a message can be when it comes back. The zero value declares nothing.
type Needs struct {
	// BrokerRetention is how long the broker keeps a message that was not acked, or lets consumers read it again (Kafka's retention, a stream's maximum age, a queue's TTL).
	BrokerRetention time.Duration

	// MaxRedeliveryAge is how long redeliveries of one message go on where that is not bounded by BrokerRetention: webhook senders, retry
	// queues. The largest redelivery age that the metrics show is the least to declare here.
	MaxRedeliveryAge time.Duration

	// DeadLetterAge is how old a message in a dead-letter or poison queue can be when somebody sends it to its consumer again.
	DeadLetterAge time.Duration

	// RelayRepublish is how long after the first publication the producer's outbox relay can publish a message again: the age of the oldest
	// row that a relay without an offset starts from.
	RelayRepublish time.Duration

	// RestoreWindow is how far a restored backup, or a broker's mirror, can go back: a producer that is restored publishes once more what it published since.
	RestoreWindow time.Duration
}

// Horizon returns the smallest horizon that is safe for these needs. The delays follow each other in the worst case: a restored or restarted producer
// publishes a message again, the broker keeps it, or goes on delivering it, whichever is longer, it ends among the dead letters and is sent again, which the
// broker keeps once more. Nothing is added for clocks, because ages are counted by the database's clock alone. What is kept for ever, such as the messages of a compacted
// topic, needs Forever.
func (n Needs) Horizon() time.Duration {
	inBroker := max(n.BrokerRetention, n.MaxRedeliveryAge)
	horizon := sum(n.RestoreWindow, n.RelayRepublish, inBroker)
	if n.DeadLetterAge > 0 {
		horizon = sum(horizon, n.DeadLetterAge, inBroker)
	}
	return horizon
}

// sum ends at Forever instead of becoming negative, which any horizon would be longer than.
func sum(parts ...time.Duration) (total time.Duration) {
	for _, part := range parts {
		if total > math.MaxInt64-part {
			return Forever
		}
		total += part
	}
	return total
}
