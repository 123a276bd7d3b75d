package deferred

import (
	"errors"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// Limits in bytes of what a row can hold beside the identity.
const (
	MaxTopicLength       = 255
	MaxOrderingKeyLength = 512
)

// ReceiverConfig configures a Receiver. Schema and Consumer are required; the zero value of every other field is a safe default.
type ReceiverConfig struct {
	// Schema is the SQL dialect: postgres.Schema{}, mysql.Schema{} or sqlite.Schema{}. Required.
	Schema inbox.Schema

	// Consumer is the scope of the identities, the same as that of the Subscriber and the Inbox. Required.
	Consumer string

	// Identity extracts the identity of a message. Default: inbox.MessageUUID.
	Identity inbox.IdentityFunc

	// Fingerprint makes the sum that tells a redelivery from another message with the same id. Default: inbox.PayloadSHA256.
	Fingerprint inbox.FingerprintFunc

	// OrderingKey returns the key whose messages are processed one at a time in the order of their reception; empty: none.
	// At most 512 bytes. Receptions that overlap in time have no order between them. Default: no message has a key.
	OrderingKey func(msg *message.Message) string

	// Delay returns how long a message stays back after its reception. Default: not at all.
	Delay func(msg *message.Message) time.Duration

	// Skip tells which messages nobody here wants. They are not stored, and count as received. Default: none.
	Skip func(msg *message.Message) bool

	// MaxMessageSize is the largest payload plus metadata in bytes that is accepted. The statement that stores a message has twice its size, so
	// the database must accept that (max_allowed_packet on MySQL and MariaDB). Default: 4 MiB.
	MaxMessageSize int

	// Timeout bounds each transaction, and how long a COMMIT without an answer is resolved. Default: 5 s.
	Timeout time.Duration

	// Wakeup is told when messages were stored, so that a Subscriber of the same process with the same Wakeup need not poll for them.
	// Default: none.
	Wakeup *Wakeup

	// AutoInitializeSchema creates the tables of pending messages and of identities in NewReceiver. Default: false.
	AutoInitializeSchema bool
}

func (c *ReceiverConfig) setDefaults() {
	if c.Identity == nil {
		c.Identity = inbox.MessageUUID
	}
	if c.Fingerprint == nil {
		c.Fingerprint = inbox.PayloadSHA256
	}
	if c.OrderingKey == nil {
		c.OrderingKey = func(*message.Message) string { return "" }
	}
	if c.Delay == nil {
		c.Delay = func(*message.Message) time.Duration { return 0 }
	}
	if c.Skip == nil {
		c.Skip = func(*message.Message) bool { return false }
	}
	if c.MaxMessageSize == 0 {
		c.MaxMessageSize = 4 << 20
	}
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
}

// Validate returns all mistakes in the configuration, each naming its field.
func (c ReceiverConfig) Validate() error {
	_, err := dialectOf(c.Schema)
	errs := []error{err, validateConsumer(c.Consumer)}
	if c.MaxMessageSize < 0 {
		errs = append(errs, mistake("MaxMessageSize is negative: %d", c.MaxMessageSize))
	}
	if c.Timeout < 0 {
		errs = append(errs, mistake("Timeout is negative: %s", c.Timeout))
	}
	return errors.Join(errs...)
}

func validateConsumer(consumer string) error {
	switch {
	case strings.TrimSpace(consumer) == "":
		return mistake("Consumer is missing: it is the scope of the identities, the same as that of the Inbox")
	case len(consumer) > inbox.MaxConsumerLength:
		return mistake("Consumer has %d bytes, at most %d are possible", len(consumer), inbox.MaxConsumerLength)
	}
	return nil
}
