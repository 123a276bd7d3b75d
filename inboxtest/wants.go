package inboxtest

import (
	"errors"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
)

// wantIs stops the test unless err is the wanted one.
func wantIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("want %q, got: %v", want, err)
	}
}

// wantText stops the test unless err has all of these in its text.
func wantText(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Fatalf("want an error with %q, got: %v", text, err)
		}
	}
}

// wantErrorLogged stops the test unless the inbox logged an error about the message.
func (s *service) wantErrorLogged(t *testing.T, id string) {
	t.Helper()
	for _, entry := range s.log.Captured()[watermill.ErrorLogLevel] {
		if entry.Fields["message_id"] == id {
			return
		}
	}
	t.Fatalf("no error about message %q in the log: %v", id, s.log.Captured())
}
