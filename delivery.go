package inbox

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// delivery is one message on its way through the Inbox: one or more attempts, each in a transaction of its own.
type delivery struct {
	inbox       *Inbox
	msg         *message.Message
	handler     message.HandlerFunc
	entry       context.Context // what the message had when it came
	row         Row
	fingerprint Fingerprint
	claim       Claim // nil: the message comes from a broker
	completed   bool  // with the claim, in a transaction that is committed

	start  time.Time
	waited time.Duration // for other holders of the identity, over all attempts

	// unresolved is the error of a COMMIT whose outcome is not known. While it is set, the next attempt is its resolution.
	unresolved      error
	resolveDeadline time.Time

	content  content // of the message, as it came
	report   DeliveryReport
	returned bool // false while the handler runs, and after it panicked or ended its goroutine
	refused  bool // the handler of the last attempt returned an error
}

func (i *Inbox) deliver(msg *message.Message, handler message.HandlerFunc) (outcome Outcome, err error) {
	d := &delivery{inbox: i, msg: msg, handler: handler, entry: msg.Context(), start: time.Now(), content: contentOf(msg)}
	if d.claim = ClaimOf(msg); d.claim != nil {
		d.claim.Hold()
	}
	defer d.end(&outcome, &err)
	outcome, err = d.run()
	d.returned = true
	return outcome, err
}

// content is what a handler may change of a message: middlewares that decrypt or decompress do. Each attempt must start from the
// original. The bytes of the payload are not copied, but their sum tells whether they are the original's.
type content struct {
	uuid     string
	payload  message.Payload
	sum      uint64
	metadata message.Metadata
}

// payloadSeed differs from process to process, and the sums never leave one.
var payloadSeed = maphash.MakeSeed()

func contentOf(msg *message.Message) content {
	return content{msg.UUID, msg.Payload, maphash.Bytes(payloadSeed, msg.Payload), maps.Clone(msg.Metadata)}
}

// spoilt tells that a handler wrote into the bytes of the payload, so that the original is not there for another attempt.
func (c content) spoilt() bool { return maphash.Bytes(payloadSeed, c.payload) != c.sum }

func (c content) restore(msg *message.Message) {
	msg.UUID, msg.Payload, msg.Metadata = c.uuid, c.payload, maps.Clone(c.metadata)
}

// leave restores what a Retry or a poison queue outside must find as it came, and keeps what the handler added to the metadata.
func (c content) leave(msg *message.Message) {
	msg.UUID, msg.Payload = c.uuid, c.payload
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	for key, value := range c.metadata {
		msg.Metadata.Set(key, value)
	}
}

// end must be deferred. It tells the Observer, and decides a message whose handler ended its goroutine: the Router nacks after a panic, but
// runtime.Goexit looks to it like nothing at all.
func (d *delivery) end(outcome *Outcome, err *error) {
	if !d.returned || *err != nil {
		d.refuseSpoilt(err)
		d.content.leave(d.msg)
		d.leaveContext()
	}
	switch {
	case !d.returned:
		d.report.Stage = StageHandler
	case *err == nil:
		d.report.Stage = "" // of an attempt that failed before
	}
	d.report.Identity = d.identity()
	d.report.Outcome, d.report.Err, d.report.Duration = *outcome, *err, time.Since(d.start)
	d.observe()
	if d.returned {
		d.releaseClaim(*err)
		return
	}
	cause := recover()
	d.releaseClaim(panicError(cause))
	if cause != nil {
		panic(cause)
	}
	d.msg.Nack()
}

// refuseSpoilt keeps a Retry and a poison queue outside from taking a payload that the handler wrote into for the one that came.
func (d *delivery) refuseSpoilt(err *error) {
	if d.report.HandlerRuns == 0 || errors.Is(*err, ErrPayloadChanged) || !d.content.spoilt() {
		return
	}
	cause := *err
	if cause == nil { // it panicked
		cause = errors.New("the handler did not return")
	}
	*err = d.fail(StageHandler, fmt.Errorf("%w: %w", ErrPayloadChanged, cause))
	d.inbox.logger.Error("Handler wrote into the payload of a message and then failed", *err, d.logFields())
}

// observe keeps a panic of the Observer from the message: its transaction has ended, and a queue must get its claim back.
func (d *delivery) observe() {
	defer d.survive()
	d.inbox.config.Observer.ObserveDelivery(d.report)
}

func (d *delivery) observeStart() {
	if d.inbox.starts == nil {
		return
	}
	defer d.survive()
	d.inbox.starts.ObserveStart(d.report.Consumer)
}

// survive must be deferred.
func (d *delivery) survive() {
	if cause := recover(); cause != nil {
		d.inbox.logger.Error("Observer panicked", fmt.Errorf("%v", cause), d.logFields())
	}
}

// leaveContext takes back what a handler stored in the message's context for its success, such as the status code with which watermill-http
// answers: the effect is not committed. What a handler stored together with its error stays.
func (d *delivery) leaveContext() {
	if !d.refused {
		d.msg.SetContext(d.entry)
	}
}

func (d *delivery) releaseClaim(err error) {
	if d.claim != nil {
		d.claim.Release(d.completed, err)
	}
}

// run makes attempts until one succeeds or no further one may start.
func (d *delivery) run() (Outcome, error) {
	i := d.inbox

	if err := d.describe(); err != nil {
		return 0, err
	}
	if err := d.entry.Err(); err != nil {
		return 0, d.fail(StageBegin, fmt.Errorf("the message's context has ended: %w", err))
	}

	waits := i.conflictBackoff()
	for retries := 0; ; retries++ {
		outcome, err := d.attempt()
		if err == nil {
			return outcome, nil
		}
		if !d.again(err, retries) {
			return 0, d.giveUp(err)
		}
		i.logger.Debug("Inbox tries the delivery again", d.logFields().Add(watermill.LogFields{"err": err.Error(), "retry": retries + 1}))
		if !sqltx.Sleep(d.entry, waits.NextBackOff()) {
			return 0, d.giveUp(err)
		}
	}
}

// maxUncertainCommits is how many COMMITs of one delivery may get no clear answer: a handler that swallows the loss of its connection would
// otherwise run until the end of the resolution's time.
const maxUncertainCommits = 3

// again decides whether another attempt may start in this process.
func (d *delivery) again(err error, retries int) bool {
	config := &d.inbox.config
	if d.entry.Err() != nil {
		return false
	}
	if d.unresolved != nil {
		return time.Now().Before(d.resolveDeadline) && d.report.UncertainCommits <= maxUncertainCommits
	}
	var failed *Error
	if !errors.Is(err, errConflict) || errors.As(err, &failed) && failed.final {
		return false
	}
	return retries < config.ConflictRetries && time.Since(d.start) < config.TxTimeout
}

// giveUp makes the error of the delivery.
func (d *delivery) giveUp(err error) error {
	if d.unresolved == nil {
		return err
	}
	err = d.fail(StageCommit, fmt.Errorf("%w: %w; the redelivery resolves it; last attempt: %w", ErrCommitUncertain, d.unresolved, err))
	d.inbox.logger.Error("Inbox could not resolve the outcome of a commit", err, d.logFields())
	return err
}

// maxConflictBackoff is the longest wait between two attempts.
const maxConflictBackoff = time.Second

func (i *Inbox) conflictBackoff() *backoff.ExponentialBackOff {
	return sqltx.Backoff(i.config.ConflictBackoff, maxConflictBackoff)
}

// retryConflicts runs fn until it fails with anything but a conflict.
func (i *Inbox) retryConflicts(ctx context.Context, fn func() error) error {
	waits := i.conflictBackoff()
	for retries := 0; ; retries++ {
		err := fn()
		if class := i.config.Schema.Classify(err); err == nil || class != ClassConflict && class != ClassLockTimeout {
			return err
		}
		if retries >= i.config.ConflictRetries || !sqltx.Sleep(ctx, waits.NextBackOff()) {
			return err
		}
	}
}

func newToken() uint64 { return rand.Uint64() }
