// Package demo is what all examples with a server have in common and what has nothing to do with their broker or database: settings, the
// Observer that prints deliveries, start and stop.
package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/watermill-inbox/inbox"
)

// Env returns the value of an environment variable, or fallback.
func Env(variable, fallback string) string {
	if value := os.Getenv(variable); value != "" {
		return value
	}
	return fallback
}

// Logger shows only what went wrong.
func Logger() watermill.LoggerAdapter {
	return watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
}

// Reports is the Observer of an inbox.
type Reports chan inbox.DeliveryReport

// ObserveDelivery must not wait: the worker goes on only when it returns.
func (r Reports) ObserveDelivery(report inbox.DeliveryReport) {
	select {
	case r <- report:
	default:
	}
}

// Await prints how the next delivery that did not fail ended.
func (r Reports) Await(ctx context.Context) error {
	for {
		select {
		case report := <-r:
			if report.Err != nil {
				fmt.Printf("inventory  failed, the delivery is repeated: %v\n", report.Err)
				continue
			}
			fmt.Printf("inventory  %s: %s\n", report.Identity.ID, report.Outcome)
			return nil
		case <-ctx.Done():
			return fmt.Errorf("wait for a delivery: %w", ctx.Err())
		}
	}
}

// Runner is a message.Router or a forwarder.Forwarder.
type Runner interface {
	Run(ctx context.Context) error
	Running() chan struct{}
	Close() error
}

// Start is what a service does with its Router and its relay. It returns when all of them run. They end by stop, which lets the messages in flight finish; ctx would take it away from them.
func Start(ctx context.Context, runners ...Runner) (stop func() error, err error) {
	ended := make(chan error, len(runners))
	stop = func() (err error) {
		for _, runner := range runners {
			err = errors.Join(err, runner.Close())
		}
		for range runners {
			err = errors.Join(err, <-ended)
		}
		return err
	}
	for _, runner := range runners {
		go func() { ended <- runner.Run(context.WithoutCancel(ctx)) }()
	}
	for _, runner := range runners {
		select {
		case <-runner.Running():
		case err := <-ended:
			return nil, fmt.Errorf("start: %w", err)
		}
	}
	return stop, nil
}
