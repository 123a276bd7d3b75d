package inboxhttp

import (
	"errors"
	"net/http"

	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// Answer is a middleware that tells the sender why a delivery failed, and lets no failed one be answered like a successful one. It belongs outside all others.
//
// watermill-http answers with the status code that the handler has set (http.SetResponseStatusCode of its package), also if the message is nacked. The inbox
// takes back what a handler set that returned no error and whose COMMIT then fails; but a handler that sets 202 and returns an error, or a middleware
// between, would still tell the sender that all is well, and the event would be lost. Behind Answer a failed delivery is answered
//
//	400  if the message has no identity or one that is too long,
//	422  if its id was processed with other content (a *inbox.MismatchError),
//	with the code that the handler has set, if it is 400 or more,
//	500  otherwise.
//
// The first two are those of the IETF draft on Idempotency-Key. Most senders repeat after any of these. A message that a poison queue took over
// is no failure: its sender gets 200.
func Answer(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := h(msg)
		if err != nil {
			wmhttp.SetResponseStatusCode(msg, statusCode(msg, err))
		}
		return produced, err
	}
}

func statusCode(msg *message.Message, err error) int {
	var mismatch *inbox.MismatchError
	switch {
	case errors.Is(err, inbox.ErrNoIdentity), errors.Is(err, inbox.ErrIdentityTooLong):
		return http.StatusBadRequest
	case errors.As(err, &mismatch):
		return http.StatusUnprocessableEntity
	}
	if code := wmhttp.StatusCodeFromContext(msg.Context(), 0); code >= http.StatusBadRequest {
		return code
	}
	return http.StatusInternalServerError
}
