package sqltx

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Backoff doubles from first to longest, with full jitter: each wait is anything from zero to its bound.
func Backoff(first, longest time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = first / 2 // each wait is anything from zero to twice its interval
	b.MaxInterval = longest / 2
	b.Multiplier = 2
	b.RandomizationFactor = 1
	b.Reset()
	return b
}

// Sleep reports whether it slept to the end.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
