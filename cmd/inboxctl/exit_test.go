package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/watermill-inbox/inbox"
)

// An operator who interrupts a command at its COMMIT must not read that nothing was changed.
func TestCommitWithoutAnswerIsNotCalledUnchanged(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	code, text := explain(ctx, &app{parsed: true}, fmt.Errorf("redrive: %w: %w", inbox.ErrCommitUncertain, context.DeadlineExceeded))
	if code != exitUncertain || !strings.Contains(text, "all or nothing was changed; look with show or list") {
		t.Fatalf("exit code %d: %s", code, text)
	}
}
