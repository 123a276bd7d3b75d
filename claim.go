package inbox

import (
	"context"
	"errors"
	"fmt"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// Claim is the hold that a worker has on a message of a durable queue, such as one of package deferred, in the same database. The Inbox
// takes the identity from it, ends the queue's row in the transaction of the effect, and tells it what became of the delivery.
//
// Its methods are called by the goroutine that handles the message.
type Claim interface {
	// Row is what was stored with the message. Its Consumer is the one that the message was claimed for; its Token is not used.
	Row() Row

	// Hold is called before a delivery begins. From here until Release the queue leaves the row alone, whatever ack or nack arrives.
	Hold()

	// CompleteQuery returns the statement that removes the queue's row. It affects no row if the claim is lost, or if the table of identities
	// has no row with the key of row (and its Token, unless that is zero). If schema is a ParameterBinder, the statement may have parameters.
	CompleteQuery(schema Schema, row Row) wsql.Query

	// Release is called when the delivery has ended. Committed tells that a transaction in which the queue's row was removed is
	// committed; otherwise err says why not.
	Release(committed bool, err error)
}

type claimKey struct{}

// boundClaim remembers its message: a context that leaks into another message must not bring the claim along.
type boundClaim struct {
	Claim
	msg *message.Message
}

// SetClaim attaches a claim to a message. It is for queues, which call it before they hand out the message.
func SetClaim(msg *message.Message, claim Claim) {
	msg.SetContext(context.WithValue(msg.Context(), claimKey{}, boundClaim{claim, msg}))
}

// ClaimOf returns the claim that was attached to the message, or nil.
func ClaimOf(msg *message.Message) Claim {
	bound, _ := msg.Context().Value(claimKey{}).(boundClaim)
	if bound.msg != msg {
		return nil
	}
	return bound.Claim
}

// describeClaim takes over what the claim knows. Nothing is computed again, so that the identity in the queue and the one in the table
// of identities cannot differ.
func (d *delivery) describeClaim() error {
	stored := d.claim.Row()
	if stored.Consumer != d.row.Consumer {
		return d.fail(StageIdentity, fmt.Errorf("%w: it was claimed for %q: give Subscriber and Inbox the same Consumer", ErrClaimConsumer, stored.Consumer))
	}
	d.row.Producer, d.row.ID, d.row.Fingerprint = stored.Producer, stored.ID, stored.Fingerprint
	d.fingerprint = DecodeFingerprint(stored.Fingerprint)
	return nil
}

// refuseForwarding keeps the Inbox away from a handler that stores messages for later. The Router publishes after the middlewares, so
// the identity would count as processed before the message is stored.
func (d *delivery) refuseForwarding() error {
	if strings.HasSuffix(message.PublisherNameFromCtx(d.entry), "deferred.Receiver") {
		return d.fail(StageIdentity, ErrForwardsToReceiver)
	}
	return nil
}

// completeClaim removes the queue's row, as the last statement before COMMIT or together with it.
func (a *attempt) completeClaim() error {
	if a.claim == nil {
		return nil
	}
	row := a.row
	if a.inbox.checker == nil {
		row.Token = 0 // it is not stored
	}
	if a.committer = a.statementCommitter(); a.committer != nil {
		a.last = a.claim.CompleteQuery(a.inbox.config.Schema, row)
		return nil
	}
	completed, err := a.complete(row)
	if err != nil || completed {
		return err
	}
	ctx, cancel := context.WithTimeout(a.ctx, a.inbox.config.CommitTimeout)
	defer cancel()
	if err := a.checkTransaction(ctx); err != nil {
		return err
	}
	return a.claimLost()
}

func (a *attempt) statementCommitter() StatementCommitter {
	tx, _ := sqltx.Native(a.tx)
	committer, _ := tx.(StatementCommitter)
	return committer
}

func (a *attempt) claimLost() error {
	return a.fail(StageClaim, fmt.Errorf("%w: its lease ended, and the message may be with another worker", ErrClaimLost))
}

// execCommit removes the queue's row and commits, or rolls back.
func (a *attempt) execCommit() error {
	ctx, cancel := context.WithTimeout(context.Background(), a.inbox.config.CommitTimeout)
	defer cancel()
	completed, err, commitErr := a.committer.ExecCommit(ctx, a.last)
	switch {
	case err != nil:
		a.rollback()
		return a.failStatement(StageClaim, err)
	case !completed:
		a.rollback()
		return a.claimLost()
	}
	return a.commitError(commitErr)
}

// completeDuplicate removes the queue's copy of a message that is processed already. It reports false if there is none: it went with
// the transaction whose outcome was in doubt, or it is another worker's to remove. After a mismatch there is no transaction any more.
func (a *attempt) completeDuplicate() (bool, error) {
	if a.claim == nil || a.report.Mismatch {
		return false, nil
	}
	row := a.row
	row.Token = 0
	return a.complete(row)
}

// complete removes the queue's row if the table of identities has this one.
func (a *attempt) complete(row Row) (bool, error) {
	ctx, cancel := context.WithTimeout(a.ctx, a.inbox.config.CommitTimeout)
	defer cancel()
	affected, err := sqltx.Exec(ctx, a.tx, a.claim.CompleteQuery(a.inbox.config.Schema, row))
	if err != nil {
		return false, a.failStatement(StageClaim, err)
	}
	return affected > 0, nil
}

// panicError is what a claim learns of a handler that did not return.
func panicError(cause any) error {
	if cause == nil {
		return errors.New("the handler ended its goroutine")
	}
	return fmt.Errorf("the handler panicked: %v", cause)
}
