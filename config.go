package inbox

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// Config configures an Inbox. Only Schema is required; the zero value of every other field is a safe default.
type Config struct {
	// Schema is the SQL dialect: postgres.Schema{}, mysql.Schema{} or sqlite.Schema{}. Required.
	Schema Schema

	// Consumer is the scope of the identities: the logical consumer, the same on every instance and in every version of the
	// service. Two consumers process the same message once each. With a fixed Consumer the Inbox serves one handler.
	//
	// Default: the name of the Router's handler, with ConsumerPrefix before it. Renaming a handler then starts a new
	// scope, in which every message counts as new.
	Consumer string

	// ConsumerPrefix is put before the handler's name when Consumer is empty, for services that share a database.
	// Default: empty.
	ConsumerPrefix string

	// ShareConsumer allows handlers with different names to share one fixed Consumer. Each message is then
	// processed by whichever of them gets it first. Default: false, a second handler is ErrConsumerShared.
	ShareConsumer bool

	// Identity extracts the identity of a message. Default: MessageUUID.
	Identity IdentityFunc

	// Fingerprint makes the sum that tells a redelivery from another message with the same id.
	// Default: PayloadSHA256. NoFingerprint turns the check off.
	Fingerprint FingerprintFunc

	// OnMismatch decides what becomes of a message whose id was processed with other content. Default: fail
	// with the *MismatchError.
	OnMismatch MismatchFunc

	// Outbox makes the publisher of the messages that handlers produce: SQLOutbox or ForwarderOutbox. It is called once in New,
	// with an executor that refuses every statement, and then once per transaction that publishes.
	// Default: nil, a handler that produces messages fails with ErrNoOutbox.
	Outbox OutboxFactory

	// OutboxDecorators wrap the publisher that Outbox makes, the first one innermost, in place of the Router's publisher
	// decorators, which never see messages that go to the outbox. They are called once per transaction that publishes.
	OutboxDecorators []message.PublisherDecorator

	// TxOptions of the transactions. Default: nil, the isolation level of the database. A level costs one more round trip on MySQL.
	// ReadOnly is refused.
	TxOptions *sql.TxOptions

	// AutoInitializeSchema creates the tables in New, before any transaction, and verifies them.
	// Default: false, see InitializeSchema and the dialect's DDL.
	AutoInitializeSchema bool

	// TxTimeout bounds one attempt: the handler's context ends after it, and the transaction is rolled back. It is
	// also the time after which no further attempt of a delivery starts. Keep it below the Router's CloseTimeout and the
	// broker's ack deadline. Default: 25 s.
	TxTimeout time.Duration

	// WaitTimeout bounds how long a delivery waits while another transaction holds its identity; past it the delivery fails with
	// ErrInFlight. Where the server does not end the wait first (lock_timeout, innodb_lock_wait_timeout in
	// the DSN), it costs the connection. Default: 5 s.
	WaitTimeout time.Duration

	// NoWait fails with ErrInFlight at once instead of waiting for another transaction that holds the identity.
	// Refused by dialects that cannot tell (SQLite). On MySQL it costs a round trip, and READ COMMITTED. Default: false.
	NoWait bool

	// CommitTimeout bounds each step that finishes a transaction: the insert of all messages that a handler returned, COMMIT, ROLLBACK. A COMMIT
	// without an answer is resolved by inserting the identity again. Raise it for handlers that return many thousands of messages.
	// Default: 5 s.
	CommitTimeout time.Duration

	// ResolveTimeout bounds the resolution of a COMMIT without an answer; past it the delivery fails with
	// ErrCommitUncertain. Default: 15 s.
	ResolveTimeout time.Duration

	// ConflictRetries is how often a delivery is tried again in this process, each time in a new transaction, after the database gave
	// up its transaction in favour of another (deadlock, serialization failure, busy). Default: 10; negative: never.
	ConflictRetries int

	// ConflictBackoff is the upper bound of the random wait before the first of these retries. It doubles with each retry
	// up to one second, which is also the most it can be. Default: 10 ms.
	ConflictBackoff time.Duration

	// Skip tells which messages need no protection. They go straight to the handler: no transaction, no identity, and what
	// the handler produces goes to the Router's publisher. Use it for events that a handler ignores. Default: none.
	Skip func(msg *message.Message) bool

	// HandlerContext says whether the handler's context ends with the message's. Default: Cancellable.
	HandlerContext HandlerContext

	// SkipTransactionCheck spares the check, just before the outbox insert and COMMIT, that the engine has not ended the transaction
	// behind the handler's back. On MySQL it is one round trip per message; PostgreSQL needs none. Skip it only if
	// every handler returns the errors of its statements. Default: false.
	SkipTransactionCheck bool

	// OnEarlyAck is called when the message was acked before its transaction was committed, as InstantAck does. An error rolls
	// back, and then the message is lost. Some brokers, RabbitMQ among them, end the message's context at the ack: use HandlerContext Detached with
	// InstantAck. Default: commit, log and tell the Observer.
	OnEarlyAck func(msg *message.Message) error

	// Observer is told about every delivery. Package metrics has one for Prometheus. Default: none.
	Observer Observer
}

// MismatchFunc decides about a message whose identity was processed with other content. If it returns nil, the message is
// treated as a duplicate: acked without effect. Otherwise the delivery fails with the error it returns. It runs without a transaction
// and must be safe for concurrent use.
type MismatchFunc func(msg *message.Message, mismatch *MismatchError) error

// HandlerContext says when the context of a handler ends. Both kinds end at TxTimeout.
type HandlerContext int

const (
	// Cancellable ends the handler's context with the message's: at Router.Close, at the broker's ack deadline, when an HTTP
	// client disconnects. A handler that returns nil nevertheless is committed, so it must return the errors that the end of its context
	// causes in its statements.
	Cancellable HandlerContext = iota

	// Detached lets a handler finish although the message's context has ended.
	Detached
)

func (c *Config) setDefaults() {
	if c.Identity == nil {
		c.Identity = MessageUUID
	}
	if c.Fingerprint == nil {
		c.Fingerprint = PayloadSHA256
	}
	if c.OnMismatch == nil {
		c.OnMismatch = func(_ *message.Message, mismatch *MismatchError) error { return mismatch }
	}
	if c.TxOptions != nil && *c.TxOptions == (sql.TxOptions{}) {
		c.TxOptions = nil // the empty options mean the default, but watermill-sql makes SERIALIZABLE of them with pgx
	}
	if c.TxTimeout == 0 {
		c.TxTimeout = 25 * time.Second
	}
	if c.WaitTimeout == 0 {
		c.WaitTimeout = 5 * time.Second
	}
	if c.CommitTimeout == 0 {
		c.CommitTimeout = 5 * time.Second
	}
	if c.ResolveTimeout == 0 {
		c.ResolveTimeout = 15 * time.Second
	}
	if c.ConflictRetries == 0 {
		c.ConflictRetries = 10
	}
	if c.ConflictBackoff == 0 {
		c.ConflictBackoff = 10 * time.Millisecond
	}
	if c.Observer == nil {
		c.Observer = nopObserver{}
	}
	if inserter, ok := c.Schema.(NoWaitInserter); ok && !sqltx.IsNil(inserter) && c.NoWait && c.TxOptions == nil && inserter.NoWaitReadCommitted() {
		c.TxOptions = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
}

// Validate returns all mistakes in the configuration, each naming its field.
func (c Config) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if sqltx.IsNil(c.Schema) {
		refuse("Schema is missing: set postgres.Schema{}, mysql.Schema{} or sqlite.Schema{}")
	} else if err := c.Schema.Validate(); err != nil {
		refuse("Schema: %w", err)
	}
	if len(c.Consumer) > MaxConsumerLength {
		refuse("Consumer has %d bytes, at most %d are possible", len(c.Consumer), MaxConsumerLength)
	}
	if c.Consumer != "" && isBlank(c.Consumer) {
		refuse("Consumer is blank")
	}
	if len(c.ConsumerPrefix) >= MaxConsumerLength {
		refuse("ConsumerPrefix has %d bytes, with a handler's name at most %d are possible", len(c.ConsumerPrefix), MaxConsumerLength)
	}
	if c.Consumer != "" && c.ConsumerPrefix != "" {
		refuse("ConsumerPrefix is set but not used: Consumer is fixed")
	}
	if c.ShareConsumer && c.Consumer == "" {
		refuse("ShareConsumer needs a fixed Consumer")
	}
	if c.TxOptions != nil && c.TxOptions.ReadOnly {
		refuse("TxOptions.ReadOnly: a read-only transaction cannot store an identity")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"TxTimeout", c.TxTimeout},
		{"WaitTimeout", c.WaitTimeout},
		{"CommitTimeout", c.CommitTimeout},
		{"ResolveTimeout", c.ResolveTimeout},
		{"ConflictBackoff", c.ConflictBackoff},
	} {
		if d.value < 0 {
			refuse("%s is negative: %s", d.field, d.value)
		}
	}
	if c.ConflictBackoff > maxConflictBackoff {
		refuse("ConflictBackoff is %s, but no wait is longer than %s", c.ConflictBackoff, maxConflictBackoff)
	}
	if c.Observer != nil && sqltx.IsNil(c.Observer) {
		refuse("Observer is a nil %T", c.Observer)
	}
	if c.HandlerContext != Cancellable && c.HandlerContext != Detached {
		refuse("HandlerContext is neither Cancellable nor Detached: %d", c.HandlerContext)
	}
	if c.Outbox == nil && len(c.OutboxDecorators) > 0 {
		refuse("OutboxDecorators need an Outbox")
	}
	for i, decorator := range c.OutboxDecorators {
		if decorator == nil {
			refuse("OutboxDecorators[%d] is nil", i)
		}
	}
	return errors.Join(append(errs, c.validateIsolation(), c.validateNoWait())...)
}

func (c Config) validateNoWait() error {
	if !c.NoWait || sqltx.IsNil(c.Schema) {
		return nil
	}
	inserter, ok := c.Schema.(NoWaitInserter)
	if !ok {
		return fmt.Errorf("NoWait: %T cannot tell that an identity is held by another transaction", c.Schema)
	}
	if inserter.NoWaitReadCommitted() && c.TxOptions != nil && c.TxOptions.Isolation != sql.LevelReadCommitted {
		return fmt.Errorf("NoWait: %T can do so at READ COMMITTED only, TxOptions.Isolation is %s", c.Schema, c.TxOptions.Isolation)
	}
	return nil
}
