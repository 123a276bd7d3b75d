package main

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-inbox/inbox/deferred"
)

// noArguments is cobra.NoArgs with an error that quotes nothing: what stands there may be a DSN.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, only flags (see inboxctl help %s)", cmd.Name(), cmd.Name())
	}
	return nil
}

// consumerReport is a line of status.
type consumerReport struct {
	Consumer       string  `json:"consumer"`
	ConsumerBase64 []byte  `json:"consumer_base64,omitempty"`
	Pending        int64   `json:"pending"`
	Suspect        int64   `json:"suspect"`
	Waiting        int64   `json:"waiting"`
	Claimed        int64   `json:"claimed"`
	Dead           int64   `json:"dead"`
	OldestSeconds  float64 `json:"oldest_seconds"`

	name   string
	oldest time.Duration
}

func (r *consumerReport) add(c deferred.Count) {
	r.Pending += c.Pending
	r.Suspect += c.Suspect
	r.Waiting += c.Waiting
	r.Claimed += c.Claimed
	r.Dead += c.Dead
	r.oldest = max(r.oldest, c.Oldest)
	r.OldestSeconds = r.oldest.Seconds()
}

func (a *app) statusCommand() *cobra.Command {
	var queueName, consumer string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "One line a consumer: pending, claimed, dead, oldest",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			queue, err := queueOf(queueName)
			if err != nil {
				return err
			}
			if consumer, err = name("consumer", consumer); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(db *database) error { return a.status(cmd.Context(), db, queue, consumer) })
		},
	}
	queueFlag(cmd, &queueName)
	cmd.Flags().StringVar(&consumer, "consumer", "", "only this one")
	return cmd
}

func (a *app) status(ctx context.Context, db *database, queue deferred.Queue, consumer string) error {
	store, err := a.store(ctx, db, queue)
	if err != nil {
		return err
	}
	counts, err := a.counts(ctx, store)
	if err != nil {
		return err
	}
	reports := []*consumerReport{}
	for _, c := range counts {
		if consumer != "" && c.Consumer != consumer {
			continue
		}
		i := slices.IndexFunc(reports, func(r *consumerReport) bool { return r.name == c.Consumer })
		if i < 0 {
			i = len(reports)
			reports = append(reports, &consumerReport{name: c.Consumer, Consumer: text(c.Consumer), ConsumerBase64: exact(c.Consumer)})
		}
		reports[i].add(c)
	}
	if len(reports) == 0 {
		if err := a.checkConsumer(ctx, db, store, consumer); err != nil {
			return err
		}
	}
	return a.print(map[string]any{"consumers": reports}, func() error {
		t := newTable("CONSUMER", "PENDING", "SUSPECT", "WAITING", "CLAIMED", "DEAD", "OLDEST")
		for _, r := range reports {
			number := func(n int64) string { return strconv.FormatInt(n, 10) }
			t.add(show(r.name), number(r.Pending), number(r.Suspect), number(r.Waiting), number(r.Claimed), number(r.Dead), ageText(r.oldest))
			if r.Dead > 0 {
				t.alarm()
			}
		}
		return a.printTable(t)
	})
}

func (a *app) counts(ctx context.Context, store *deferred.Store) ([]deferred.Count, error) {
	ctx, cancel := a.step(ctx)
	defer cancel()
	return store.Count(ctx)
}

// checkConsumer tells an unknown consumer from one that has nothing in the queue. No consumer is always known.
func (a *app) checkConsumer(ctx context.Context, _ *database, store *deferred.Store, consumer string) error {
	if consumer == "" {
		return nil
	}
	counts, err := a.counts(ctx, store)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(counts, func(c deferred.Count) bool { return c.Consumer == consumer }) {
		return nil
	}
	return exit(exitNothing, "there is no consumer %s", show(consumer))
}
