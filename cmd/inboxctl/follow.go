package main

import (
	"context"

	"github.com/watermill-inbox/inbox/retention"
)

// untilSignal is a context for work that a signal ends between two transactions, never in one, so that it is known what was done.
func untilSignal(ctx context.Context) (work context.Context, stop context.CancelFunc) {
	return context.WithCancel(context.WithoutCancel(ctx))
}

// follower is told about each transaction, and ends the work after the one in which a signal came.
type follower struct {
	ctx  context.Context //nolint:containedctx // that of the signals
	stop context.CancelFunc
	seen func(batch retention.Batch)
}

// ObserveBatch implements retention.Observer.
func (f *follower) ObserveBatch(batch retention.Batch) {
	f.seen(batch)
	if f.ctx.Err() != nil {
		f.stop()
	}
}
