package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/brokers/inboxhttp"
	"github.com/watermill-inbox/inbox/deferred"
)

// endpoint stores what the sender signed, and answers 2xx only when it is durable. It processes nothing, so the sender never waits for
// the business.
type endpoint struct {
	secret   secret
	receiver *deferred.Receiver
	topic    string
	logger   watermill.LoggerAdapter
}

var webhook = inboxhttp.Config{
	IDHeader: idHeader,
	MaxBody:  64 << 10, // all that a stranger can make us read
	Keep:     inboxhttp.Only(idHeader, timestampHeader),
}

func (e endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	outcome, err := e.receive(r)
	code := status(outcome, err)
	if err != nil {
		e.logger.Error("Webhook refused", err, watermill.LogFields{"status": code})
	}
	http.Error(w, http.StatusText(code), code) // no details for strangers
}

// receive verifies first and stores then. The other way round, whoever guesses an id could take it: the true event with it would be a mismatch.
func (e endpoint) receive(r *http.Request) (deferred.ReceiveOutcome, error) {
	msg, err := webhook.Unmarshal("", r)
	if err != nil {
		return 0, errors.Join(errMalformed, err)
	}
	if err := e.secret.verify(r.Header, msg.Payload, time.Now()); err != nil {
		return 0, err
	}
	// A sender that hangs up must not leave the question open whether the message is stored. Receive is bounded by ReceiverConfig.Timeout.
	outcomes, err := e.receiver.Receive(context.WithoutCancel(r.Context()), e.topic, msg)
	if err != nil {
		return 0, err
	}
	return outcomes[0], nil
}

// status is what the sender is answered. After anything but 2xx it repeats.
func status(outcome deferred.ReceiveOutcome, err error) int {
	var (
		tooLarge *http.MaxBytesError
		mismatch *inbox.MismatchError
	)
	switch {
	case errors.As(err, &tooLarge), errors.Is(err, deferred.ErrTooLarge):
		return http.StatusRequestEntityTooLarge
	case errors.Is(err, errForged):
		return http.StatusUnauthorized
	case errors.Is(err, errMalformed), errors.Is(err, errExpired), errors.Is(err, inbox.ErrNoIdentity), errors.Is(err, inbox.ErrIdentityTooLong):
		return http.StatusBadRequest
	case errors.As(err, &mismatch):
		return http.StatusUnprocessableEntity
	case err != nil:
		return http.StatusServiceUnavailable
	case outcome == deferred.AlreadyProcessed:
		return http.StatusOK
	default: // Stored, AlreadyPending: durable, still to be done, or dead, which is the operator's concern and not the sender's
		return http.StatusAccepted
	}
}
