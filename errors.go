package inbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// Errors that callers can tell apart with errors.Is. Those marked permanent describe the message itself: IsPoison is
// true and IsRetryable false for them. The others never make a message poison.
var (
	// ErrNoIdentity: the message has no id, or a blank one, or the IdentityFunc failed. Permanent.
	ErrNoIdentity = errors.New("message has no identity")

	// ErrIdentityTooLong: consumer, producer or id is longer than the table can hold. Permanent.
	ErrIdentityTooLong = errors.New("identity is too long to be stored exactly")

	// ErrBadFingerprint: the FingerprintFunc failed or returned something that cannot be stored. Permanent.
	ErrBadFingerprint = errors.New("message has no usable fingerprint")

	// ErrUnstorable: the handler produced a message whose text is not UTF-8, which no outbox of watermill-sql can store exactly. Nothing is
	// committed. Permanent.
	ErrUnstorable = errors.New("outgoing message cannot be stored exactly")

	// ErrNoConsumer: Config.Consumer is empty and the message did not come through a Router's named handler.
	ErrNoConsumer = errors.New("no consumer: set Config.Consumer or use a Router handler with a name")

	// ErrConsumerShared: an Inbox with a fixed Config.Consumer is used by a second handler. Handlers that share a
	// consumer take each other's messages for duplicates.
	ErrConsumerShared = errors.New("one consumer is shared by two handlers")

	// ErrNoTransaction: the context carries no open transaction of an Inbox.
	ErrNoTransaction = errors.New("no inbox transaction in the context")

	// ErrNoOutbox: the handler produced messages and Config.Outbox is nil. Nothing is committed.
	ErrNoOutbox = errors.New("handler produced messages but Config.Outbox is not set")

	// ErrNoPublishTopic: the handler produced messages but has no publish topic. Nothing is committed.
	ErrNoPublishTopic = errors.New("handler produced messages but has no publish topic: add it with AddHandler, or publish through Inbox.Publisher")

	// ErrInFlight: another transaction held the same identity for as long as this delivery may wait.
	ErrInFlight = errors.New("identity is in flight in another transaction")

	// ErrTransactionLost: the transaction ended before the Inbox could commit it, by the engine or by the handler.
	ErrTransactionLost = errors.New("transaction ended before the inbox committed it")

	// ErrCommitUncertain: COMMIT got no clear answer and the outcome could not be resolved in time. The redelivery
	// resolves it.
	ErrCommitUncertain = errors.New("outcome of commit is not known")

	// ErrClaimLost: the claim on a deferred message ended before its effect was committed.
	ErrClaimLost = errors.New("claim on the pending message is lost")

	// ErrClaimConsumer: a deferred message was claimed for another consumer than the Inbox that handles it.
	ErrClaimConsumer = errors.New("claim belongs to another consumer")

	// ErrRetryInside: a handler ran twice in one transaction, because a Retry middleware stands inside the Inbox.
	// The writes of the failed run would be committed with those of the second.
	ErrRetryInside = errors.New("handler ran twice in one transaction: move the Retry middleware outside the inbox")

	// ErrPayloadChanged: the handler failed after it had written into the bytes of Message.Payload, so only the broker has the original. A
	// handler that decrypts or decompresses must assign a new slice.
	ErrPayloadChanged = errors.New("handler changed the bytes of the payload and failed: assign a new slice to the message's Payload instead")

	// ErrForwardsToReceiver: the Inbox stands around a handler that forwards into a deferred.Receiver. It belongs to the handler
	// that processes what the Receiver stored.
	ErrForwardsToReceiver = errors.New("inbox around a handler that forwards to a Receiver: add it to the handler that processes the stored messages, not to the router")

	// ErrNested: two Inboxes, or one twice, stand around the same handler.
	ErrNested = errors.New("inbox inside another inbox for the same message")

	// ErrNacked: the handler sent the nack itself and returned no error. Nothing is committed.
	ErrNacked = errors.New("handler nacked the message")
)

// Stage is the part of a delivery in which an error happened.
type Stage string

// The stages of a delivery in their order.
const (
	StageIdentity Stage = "identity"
	StageBegin    Stage = "begin"
	StageInsert   Stage = "insert identity"
	StageCompare  Stage = "compare with stored identity"
	StageHandler  Stage = "handler"
	StageCheck    Stage = "check transaction"
	StageOutbox   Stage = "outbox"
	StageClaim    Stage = "complete claim"
	StageCommit   Stage = "commit"

	// StageReceive is the work of a deferred.Receiver, before any delivery.
	StageReceive Stage = "receive"
)

// Error is a failed delivery. It names the consumer and the message and wraps the cause. Errors of handlers come through
// without it, unless they are transient errors of the database.
type Error struct {
	Consumer string
	Identity Identity
	Stage    Stage
	Err      error

	permanent bool // the message itself is at fault
	final     bool // another attempt in this process cannot help
}

// Error returns consumer, message, stage and cause.
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s: %v", describeMessage(e.Consumer, e.Identity), e.Stage, e.Err)
}

func describeMessage(consumer string, identity Identity) string {
	description := "inbox: consumer " + quote(consumer)
	if identity.ID != "" {
		description += ": message " + quote(identity.ID)
	}
	if identity.Producer != "" {
		description += " of producer " + quote(identity.Producer)
	}
	return description
}

// quote keeps an id of megabytes out of messages.
func quote(s string) string {
	const longest = 600 // more than any identity that can be stored
	if len(s) <= longest {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("%q… (%d bytes)", s[:longest], len(s))
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// MismatchError says that a message carries the identity of a processed message but other content. The stored effect stays.
// It is permanent.
type MismatchError struct {
	Consumer string
	Identity Identity
	Stored   Fingerprint
	Received Fingerprint
}

// Error returns consumer, message and both fingerprints.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s: was processed with other content: stored fingerprint %s, received %s; "+
		"find out which producer reuses ids, or set Config.OnMismatch",
		describeMessage(e.Consumer, e.Identity), e.Stored, e.Received)
}

// IsRetryable tells whether handling the message again in this process may succeed. It is made for ShouldRetry of
// Watermill's Retry middleware around the Inbox:
//
//	middleware.Retry{ShouldRetry: func(p middleware.RetryParams) bool { return inbox.IsRetryable(p.Err) }}
//
// It is true for the database's transient errors and for any error of a handler, false for nil, for messages that can never
// be processed, for mistakes in the configuration and for context.Canceled.
func IsRetryable(err error) bool {
	var e *Error
	switch {
	case err == nil, errors.Is(err, context.Canceled), isPermanent(err), isMisuse(err):
		return false
	case isAny(err, ErrClaimLost, ErrNacked):
		return false
	case errors.As(err, &e):
		return !e.final
	default:
		return true
	}
}

// IsPoison tells whether the message, not its surroundings, is the cause of the error. It is made for Watermill's
// PoisonQueueWithFilter around the Inbox.
//
// It is false for nil and whenever the message may still be processed one day: conflicts, lost connections, messages in flight
// elsewhere, uncertain commits, lost transactions and claims, context errors and mistakes in the configuration. It is true
// for messages without a usable identity, for a MismatchError, for ErrUnstorable, for every other error of a handler and for constraints that fail at COMMIT.
func IsPoison(err error) bool {
	var e *Error
	switch {
	case err == nil:
		return false
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), isMisuse(err), isTransient(err):
		return false
	case errors.As(err, &e):
		return e.permanent
	default:
		return true
	}
}

// IsConflict tells that the database gave up a transaction in favour of another, as often as Config.ConflictRetries allows. Neither the message nor the
// handler is the cause.
func IsConflict(err error) bool { return errors.Is(err, errConflict) }

func isPermanent(err error) bool {
	var mismatch *MismatchError
	return isAny(err, ErrNoIdentity, ErrIdentityTooLong, ErrBadFingerprint, ErrUnstorable) || errors.As(err, &mismatch)
}

// isMisuse tells errors that only a change of the program or its configuration removes.
func isMisuse(err error) bool {
	return isAny(err, ErrNoConsumer, ErrConsumerShared, ErrNoTransaction, ErrNoOutbox, ErrNoPublishTopic, ErrClaimConsumer, ErrRetryInside, ErrNested, ErrForwardsToReceiver, ErrPayloadChanged)
}

func isTransient(err error) bool {
	var netErr net.Error
	return isAny(err, ErrInFlight, ErrCommitUncertain, ErrTransactionLost, ErrClaimLost, ErrNacked) ||
		errors.As(err, &netErr) || isAny(err, driver.ErrBadConn, sql.ErrConnDone, net.ErrClosed)
}

// IsConnectionError tells errors of the connection itself, which no dialect needs to explain: those of package net, io.EOF and
// driver.ErrBadConn. It is for dialects.
func IsConnectionError(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) ||
		isAny(err, driver.ErrBadConn, sql.ErrConnDone, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed)
}

func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
