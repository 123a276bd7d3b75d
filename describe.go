package inbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// describe fills in who the message is for and what it is. It touches no database.
func (d *delivery) describe() error {
	var err error
	if d.row.Consumer, err = d.inbox.consumer(d.entry); err != nil {
		return d.fail(StageIdentity, err)
	}
	d.report.Consumer = d.row.Consumer
	d.observeStart()
	if h := holderFromContext(d.entry); h != nil && h.msg == d.msg && h.open() != nil {
		return d.fail(StageIdentity, fmt.Errorf("%w (the outer consumer is %q)", ErrNested, h.row.Consumer))
	}
	if err := d.refuseForwarding(); err != nil {
		return err
	}
	if d.claim != nil {
		return d.describeClaim()
	}

	d.fingerprint, err = d.row.identify(d.msg, d.inbox.config.Identity, d.inbox.config.Fingerprint)
	if err != nil {
		return d.fail(StageIdentity, err)
	}
	return nil
}

// identify fills in what the message is.
func (r *Row) identify(msg *message.Message, identityOf IdentityFunc, fingerprintOf FingerprintFunc) (Fingerprint, error) {
	identity, err := identityOf(msg)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("%w: %w", ErrNoIdentity, err)
	}
	r.Producer, r.ID = identity.Producer, identity.ID
	if isBlank(identity.ID) {
		return Fingerprint{}, fmt.Errorf("%w: the id is %s (the message's UUID is %s): configure Config.Identity for what the producer sends",
			ErrNoIdentity, quote(identity.ID), quote(msg.UUID))
	}
	if err := checkLengths(*r); err != nil {
		return Fingerprint{}, err
	}

	fingerprint, err := fingerprintOf(msg)
	if err == nil {
		r.Fingerprint, err = fingerprint.encode()
	}
	if err != nil {
		return Fingerprint{}, fmt.Errorf("%w: %w", ErrBadFingerprint, err)
	}
	return fingerprint, nil
}

// NewRow describes a message for a consumer as an Inbox with these functions does, for what stores messages to be processed later.
// The error is an *Error that wraps ErrNoIdentity, ErrIdentityTooLong or ErrBadFingerprint.
func NewRow(consumer string, msg *message.Message, identity IdentityFunc, fingerprint FingerprintFunc) (Row, error) {
	row := Row{Consumer: consumer}
	if _, err := row.identify(msg, identity, fingerprint); err != nil {
		return row, newError(row, StageIdentity, err)
	}
	return row, nil
}

// consumer returns the scope of the message, and refuses a second handler in the scope of the first.
func (i *Inbox) consumer(ctx context.Context) (string, error) {
	handlerName := message.HandlerNameFromCtx(ctx)
	if i.config.Consumer == "" {
		if isBlank(handlerName) {
			return "", ErrNoConsumer
		}
		return i.config.ConsumerPrefix + handlerName, nil
	}
	if i.config.ShareConsumer || handlerName == "" {
		return i.config.Consumer, nil
	}
	if i.handlerName.Load() == nil {
		name := handlerName // a copy, so that only the first message pays for it
		i.handlerName.CompareAndSwap(nil, &name)
	}
	if first := *i.handlerName.Load(); first != handlerName {
		return i.config.Consumer, fmt.Errorf("%w: handler %q uses it already, now handler %q does: give each its own Inbox, or leave Config.Consumer empty, or set Config.ShareConsumer",
			ErrConsumerShared, first, handlerName)
	}
	return i.config.Consumer, nil
}

func checkLengths(row Row) error {
	for _, part := range []struct {
		name, value string
		limit       int
	}{
		{"consumer", row.Consumer, MaxConsumerLength},
		{"producer", row.Producer, MaxProducerLength},
		{"id", row.ID, MaxIDLength},
	} {
		if len(part.value) > part.limit {
			return fmt.Errorf("%w: the %s has %d bytes, at most %d are possible: use a shorter one, or a hash of it in Config.Identity",
				ErrIdentityTooLong, part.name, len(part.value), part.limit)
		}
	}
	return nil
}

func isBlank(s string) bool { return strings.TrimSpace(s) == "" }

func (d *delivery) identity() Identity {
	return Identity{Producer: d.row.Producer, ID: d.row.ID}
}

// fail wraps the error of a stage. It does not wrap twice.
func (d *delivery) fail(stage Stage, err error) *Error {
	d.report.Stage = stage
	return newError(d.row, stage, err)
}

func newError(row Row, stage Stage, err error) *Error {
	return &Error{
		Consumer:  row.Consumer,
		Identity:  Identity{Producer: row.Producer, ID: row.ID},
		Stage:     stage,
		Err:       err,
		permanent: isPermanent(err),
		final:     isPermanent(err) || isMisuse(err),
	}
}

func (d *delivery) logFields() watermill.LogFields {
	return watermill.LogFields{
		"consumer":     d.row.Consumer,
		"producer":     d.row.Producer,
		"message_id":   d.row.ID,
		"message_uuid": d.msg.UUID,
	}
}
