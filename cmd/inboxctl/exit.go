package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/retention"
)

// The exit codes, as the package documentation and the help list them.
const (
	exitDone        = 0
	exitFailure     = 1
	exitUsage       = 2
	exitTable       = 3
	exitNothing     = 4
	exitRefused     = 5
	exitUncertain   = 6
	exitInterrupted = 130
)

// exitError is an error that knows its exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func exit(code int, format string, args ...any) error {
	return &exitError{code, fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error { return exit(exitUsage, format, args...) }

// explain returns the exit code for an error, and what to say.
func explain(ctx context.Context, a *app, err error) (int, string) {
	var (
		known   *exitError
		table   *inbox.TableError
		notDead *deferred.NotDeadError
		refused *retention.ForgetError
	)
	switch {
	case errors.As(err, &known):
		return known.code, known.Error()
	case !a.parsed: // cobra did not get to run a command
		return exitUsage, err.Error() + " (see inboxctl help)"
	case errors.As(err, &table) && table.Missing():
		return exitTable, fmt.Sprintf("table %s does not exist, or this user may not see it: run inboxctl init, or name the right table", table.Table)
	case errors.As(err, &table):
		return exitTable, table.Error()
	case errors.As(err, &notDead):
		return exitNothing, fmt.Sprintf("%v; nothing was changed", notDead)
	case errors.As(err, &refused) && len(refused.Missing) > 0:
		return exitNothing, "not processed, so there is nothing to forget: " + identityNames(refused.Missing) + "; nothing was changed"
	case errors.As(err, &refused):
		return exitRefused, "a message in the pending table has the identity, so it is kept: " + identityNames(refused.Pending) + "; nothing was changed"
	case errors.Is(err, retention.ErrAnotherSweeper):
		return exitRefused, "another sweeper is at work on this table; nothing was changed"
	case errors.Is(err, inbox.ErrCommitUncertain):
		return exitUncertain, fmt.Sprintf("the database did not answer to COMMIT, so all or nothing was changed; look with show or list before you try again: %v", err)
	case ctx.Err() != nil:
		return exitInterrupted, "interrupted, nothing was changed"
	case errors.Is(err, context.DeadlineExceeded):
		return exitFailure, fmt.Sprintf("no answer of the database within --timeout %s: %v", a.flags.timeout, err)
	}
	return exitFailure, err.Error()
}
