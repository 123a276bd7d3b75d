package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-inbox/inbox/retention"
)

// cleaning is one run of clean.
type cleaning struct {
	app          *app
	consent      consent
	consumer     string // empty: all
	horizon      time.Duration
	deadPayloads time.Duration
	batch        int
	pause        time.Duration
}

// shortHorizon is below what brokers keep. A clean of all consumers with such a horizon would be next to forgetting all.
const shortHorizon = 24 * time.Hour

func (a *app) cleanCommand() *cobra.Command {
	var (
		c                                 = cleaning{app: a}
		consumer, olderThan, deadPayloads string
	)
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove identities that are older than messages can be when they come back",
		Long: `Sweeps the table of identities once, as retention.Cleaner does in a service, and removes identities that were processed longer ago than --older-than, by
the database's clock. That must be longer than the oldest repetition: the broker's retention, dead letters, replays and restored backups included. An
identity that a message in the pending table has is kept, whatever its age.

It reads the whole table, in windows, and removes in small transactions with a pause between them, so it can run beside the consumers. Ages are such as 30d,
720h or 90m. Below 24h it needs --consumer.`,
		Example: "  inboxctl clean --older-than 30d --dry-run\n  inboxctl clean --older-than 30d --yes\n  inboxctl clean --older-than 30d --dead-payloads 90d",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if c.consumer, err = name("consumer", consumer); err != nil {
				return err
			}
			if err := c.read(olderThan, deadPayloads); err != nil {
				return err
			}
			if err := a.possible(c.consent, "clean"); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(db *database) error { return c.run(cmd.Context(), db) })
		},
	}
	cmd.Flags().StringVar(&olderThan, "older-than", "", "the age; required, because no default is safe")
	cmd.Flags().StringVar(&consumer, "consumer", "", "only of this consumer")
	cmd.Flags().StringVar(&deadPayloads, "dead-payloads", "", "remove payload and metadata of messages that are dead for longer than this, too; they can only be discarded then")
	cmd.Flags().IntVar(&c.batch, "batch", 500, "how many identities one transaction removes at most, up to 1000")
	cmd.Flags().DurationVar(&c.pause, "pause", 50*time.Millisecond, "the wait between two transactions")
	c.consent.flags(cmd)
	return cmd
}

func (c *cleaning) read(olderThan, deadPayloads string) (err error) {
	if olderThan == "" {
		return usage("clean needs --older-than: how old can a message be when it comes back?")
	}
	if c.horizon, err = ageOf("older-than", olderThan); err != nil {
		return err
	}
	if deadPayloads != "" {
		if c.deadPayloads, err = ageOf("dead-payloads", deadPayloads); err != nil {
			return err
		}
	}
	switch {
	case c.horizon < shortHorizon && c.consumer == "":
		return usage("--older-than %s is so short that it needs --consumer: messages that come back later would be processed again", olderThan)
	case c.batch < 1 || c.batch > 1000:
		return usage("--batch %d is not 1 to 1000", c.batch)
	case c.pause <= 0:
		return usage("--pause %s is not positive", c.pause)
	}
	return nil
}

// ageOf reads a duration, also in days.
func ageOf(flag, value string) (time.Duration, error) {
	age, err := time.ParseDuration(value)
	if days, ok := strings.CutSuffix(value, "d"); ok {
		var n int
		if n, err = strconv.Atoi(days); n > 100_000 {
			return 0, usage("--%s %s is longer than can be told", flag, value)
		}
		age = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || age < time.Second {
		return 0, usage("--%s %q is not an age of at least a second, such as 30d, 720h or 90m", flag, value)
	}
	return age, nil
}

func (c *cleaning) run(ctx context.Context, db *database) error {
	identities, err := c.app.identities(ctx, db)
	if err != nil {
		return err
	}
	if c.consumer != "" {
		if err := c.app.checkIdentities(ctx, db, identities, c.consumer); err != nil {
			return err
		}
	}
	total, err := c.total(ctx, identities)
	if err != nil {
		return err
	}
	if !c.consent.yes {
		looked, err := c.sweep(ctx, db, "look", total, true)
		if err != nil {
			return err
		}
		if c.consent.dryRun {
			return c.print(looked)
		}
		if looked.Removed() == 0 && looked.Payloads == 0 {
			return c.print(looked)
		}
		total = looked.Examined()
		if err := c.confirm(ctx, looked); err != nil {
			return err
		}
	}
	report, err := c.sweep(ctx, db, "clean", total, false)
	if err != nil {
		if c.app.json() {
			err = errors.Join(err, c.print(report))
		}
		return err
	}
	return c.print(report)
}

func (c *cleaning) confirm(ctx context.Context, looked retention.Report) error {
	fmt.Fprintf(c.app.err, "%s older than %s will be removed:\n", countIdentities(looked.Removed()), c.horizon)
	if err := cleanTable(looked).write(c.app.err, c.app.colours(c.app.err)); err != nil {
		return err
	}
	what := "remove " + countIdentities(looked.Removed())
	if c.deadPayloads > 0 {
		fmt.Fprintf(c.app.err, "Payload and metadata of %s, dead for longer than %s, will be removed, too.\n", count(int(looked.Payloads), "message"), c.deadPayloads)
		what += " and " + count(int(looked.Payloads), "payload")
	}
	return c.app.confirm(ctx, c.consent, what)
}

// total is about how many identities a sweep examines, for the progress bar.
func (c *cleaning) total(ctx context.Context, identities *retention.Identities) (total int64, err error) {
	if !isTerminal(c.app.err) {
		return 0, nil
	}
	ctx, cancel := c.app.step(ctx)
	defer cancel()
	names := []string{c.consumer}
	if c.consumer == "" {
		if names, err = identities.Consumers(ctx); err != nil {
			return 0, err
		}
	}
	for _, name := range names {
		n, err := identities.Estimate(ctx, name)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return max(total, 1), nil
}

func (c *cleaning) sweep(ctx context.Context, db *database, what string, total int64, dryRun bool) (retention.Report, error) {
	bar := c.app.progress(what, total)
	defer bar.end()
	work, stop := untilSignal(ctx)
	defer stop()
	config := retention.Config{
		Schema: db.schema, Horizon: c.horizon, DeadPayloads: c.deadPayloads, DryRun: dryRun, BatchSize: c.batch, Pause: c.pause, Timeout: c.app.flags.timeout,
		Observer: &follower{ctx: ctx, stop: stop, seen: func(batch retention.Batch) { bar.add(int64(batch.Examined)) }},
	}
	if c.consumer != "" {
		config.Horizon, config.Horizons = retention.Forever, map[string]time.Duration{c.consumer: c.horizon}
	}
	cleaner, err := retention.NewCleaner(db.pool, config, nil)
	if err != nil {
		return retention.Report{}, err
	}
	report, err := cleaner.RunOnce(work)
	switch {
	case err == nil:
		bar.finish()
		return report, nil
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return report, exit(exitInterrupted, "interrupted: %s", c.done(report))
	case errors.Is(err, retention.ErrAnotherSweeper):
		return report, err
	}
	return report, fmt.Errorf("%s, and perhaps those of a last batch: %w", c.done(report), err)
}

// done says what a sweep that came to no end has done.
func (c *cleaning) done(report retention.Report) string {
	if report.DryRun {
		return "nothing was changed"
	}
	return fmt.Sprintf("%s and %s are removed", countIdentities(report.Removed()), count(int(report.Payloads), "payload"))
}
