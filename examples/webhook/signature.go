package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks. The id is the same in every repetition of an event, timestamp and signature are those of the attempt.
const (
	idHeader        = "Webhook-Id"
	timestampHeader = "Webhook-Timestamp"
	signatureHeader = "Webhook-Signature"
)

// tolerance is how far the sender's clock may be from ours. A request recorded longer ago is refused.
const tolerance = 5 * time.Minute

var (
	errMalformed = errors.New("malformed request")
	errForged    = errors.New("no valid signature")
	errExpired   = errors.New("timestamp out of tolerance")
)

// secret is what sender and receiver share. Each endpoint has its own.
type secret []byte

func parseSecret(text string) (secret, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, "whsec_"))
	if err == nil && len(key) < 24 {
		err = fmt.Errorf("%d bytes, at least 24 are needed", len(key))
	}
	if err != nil {
		return nil, fmt.Errorf("webhook secret: %w", err) // without the secret: errors go into logs
	}
	return key, nil
}

// verify tells whether who knows the secret sent this body under this id, just now. It reads nothing but headers and bytes: the body must not
// be parsed before.
func (s secret) verify(header http.Header, body []byte, now time.Time) error {
	id, timestamp, signatures := header.Values(idHeader), header.Values(timestampHeader), header.Values(signatureHeader)
	if len(id) != 1 || len(timestamp) != 1 || len(signatures) != 1 {
		return fmt.Errorf("%w: %s, %s and %s must each be there once", errMalformed, idHeader, timestampHeader, signatureHeader)
	}
	seconds, err := strconv.ParseInt(timestamp[0], 10, 64)
	// A dot in the id would let anybody move the borders between id, timestamp and body without touching the signature.
	if err != nil || id[0] == "" || strings.Contains(id[0], ".") {
		return fmt.Errorf("%w: %s must be seconds since 1970, %s text without a dot", errMalformed, timestampHeader, idHeader)
	}
	if !s.signed(signatures[0], id[0], timestamp[0], body) {
		return errForged
	}
	if now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return errExpired
	}
	return nil
}

// signed looks for one valid signature: a sender that changes its secret sends one of the old and one of the new.
func (s secret) signed(signatures, id, timestamp string, body []byte) bool {
	want := s.sum(id, timestamp, body)
	for _, signature := range strings.Fields(signatures) {
		encoded, ok := strings.CutPrefix(signature, "v1,")
		if !ok {
			continue // of another kind
		}
		got, err := base64.StdEncoding.DecodeString(encoded)
		if err == nil && hmac.Equal(got, want) { // in constant time
			return true
		}
	}
	return false
}

// sign is the sender's side.
func (s secret) sign(id, timestamp string, body []byte) string {
	return "v1," + base64.StdEncoding.EncodeToString(s.sum(id, timestamp, body))
}

func (s secret) sum(id, timestamp string, body []byte) []byte {
	mac := hmac.New(sha256.New, s)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	return mac.Sum(nil)
}
