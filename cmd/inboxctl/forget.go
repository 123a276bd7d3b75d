package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/retention"
)

// forgetting is one run of forget.
type forgetting struct {
	app        *app
	consent    consent
	consumer   string
	identities []inbox.Identity // or a range of time:
	from, to   time.Time

	result forgetResult
}

// forgetResult is what forget prints.
type forgetResult struct {
	Action         string `json:"action"`
	Consumer       string `json:"consumer"`
	ConsumerBase64 []byte `json:"consumer_base64,omitempty"`
	DryRun         bool   `json:"dry_run"`
	Matched        int64  `json:"matched"`
	Changed        int64  `json:"changed"`
}

func (a *app) forgetCommand() *cobra.Command {
	var (
		f                            = forgetting{app: a}
		consumer, producer, from, to string
		ids                          []string
	)
	cmd := &cobra.Command{
		Use:   "forget",
		Short: "Forget identities of one consumer, so that their messages are processed again",
		Long: `Removes identities of processed messages on purpose. Nothing is sent again by that, but when such a message comes again, it is processed again: undo
the first effect before.

Name the consumer, and either the ids or a range of time in which they were processed, from --from on and before --to, by the database's clock. There is
no way to forget all of a consumer, or of all consumers, at once. Ids are all or nothing. An identity that a message in the pending table has is kept,
whatever the state of that message: with --id it is an error, in a range it is left out.`,
		Example: "  inboxctl forget --consumer reserve-stock --id evt-42\n" +
			"  inboxctl forget --consumer reserve-stock --from 2026-12-03T10:00:00Z --to 2026-12-03T11:00:00Z --dry-run",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if f.consumer, err = name("consumer", consumer); err != nil {
				return err
			}
			if err := f.read(producer, ids, from, to); err != nil {
				return err
			}
			if err := a.possible(f.consent, "forget"); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(db *database) error { return f.run(cmd.Context(), db) })
		},
	}
	cmd.Flags().StringVar(&consumer, "consumer", "", "the consumer; required")
	cmd.Flags().StringArrayVar(&ids, "id", nil, "an id; can be given more than once")
	cmd.Flags().StringVar(&producer, "producer", "", "the producer of the ids, if they have one")
	cmd.Flags().StringVar(&from, "from", "", "processed at this time or later: RFC 3339, or a date for its midnight in UTC")
	cmd.Flags().StringVar(&to, "to", "", "processed before this time")
	f.consent.flags(cmd)
	return cmd
}

// read checks and reads what selects identities.
func (f *forgetting) read(producer string, ids []string, from, to string) (err error) {
	byID, byTime := len(ids) > 0 || producer != "", from != "" || to != ""
	switch {
	case f.consumer == "":
		return usage("forget needs --consumer")
	case byID == byTime:
		return usage("forget what? Give --id, or --from and --to")
	case byID:
		f.identities, err = identitiesOf(producer, ids)
		return err
	}
	if f.from, err = timeOf("from", from); err != nil {
		return err
	}
	if f.to, err = timeOf("to", to); err != nil {
		return err
	}
	if !f.from.Before(f.to) {
		return usage("--from %s is not before --to %s", timeText(f.from), timeText(f.to))
	}
	return nil
}

func identitiesOf(producer string, ids []string) (identities []inbox.Identity, err error) {
	if producer, err = name("producer", producer); err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, usage("--producer needs --id")
	}
	seen := map[string]bool{}
	for _, id := range ids {
		if id, err = name("id", id); err != nil {
			return nil, err
		}
		if !seen[id] {
			identities = append(identities, inbox.Identity{Producer: producer, ID: id})
		}
		seen[id] = true
	}
	return identities, nil
}

func timeOf(flag, value string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, value); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage("--%s %q is neither a time such as 2026-12-03T10:00:00Z nor a date", flag, value)
}

func (f *forgetting) run(ctx context.Context, db *database) error {
	identities, err := f.app.identities(ctx, db)
	if err != nil {
		return err
	}
	f.result = forgetResult{Action: "forget", Consumer: text(f.consumer), ConsumerBase64: exact(f.consumer), DryRun: f.consent.dryRun}
	if err := f.preview(ctx, db, identities); err != nil {
		return err
	}
	if f.consent.dryRun {
		return f.print()
	}
	if err := f.app.confirm(ctx, f.consent, "forget "+countIdentities(f.result.Matched)); err != nil {
		return err
	}
	if err := f.forget(ctx, identities); err != nil {
		if f.app.json() {
			err = errors.Join(err, f.print())
		}
		return err
	}
	return f.print()
}

// preview finds what is to be forgotten, and shows it unless --yes is given.
func (f *forgetting) preview(ctx context.Context, db *database, identities *retention.Identities) error {
	found, err := f.find(ctx, identities)
	var missing *retention.ForgetError
	if errors.As(err, &missing) {
		if err := f.app.checkIdentities(ctx, db, identities, f.consumer); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if f.result.Matched == 0 {
		if err := f.app.checkIdentities(ctx, db, identities, f.consumer); err != nil {
			return err
		}
		return exit(exitNothing, "consumer %s processed nothing in that time that can be forgotten", show(f.consumer))
	}
	if f.consent.yes {
		return nil
	}
	fmt.Fprintf(f.app.err, "%s of consumer %s will be forgotten. If their messages come again, they are processed again.\n",
		countIdentities(f.result.Matched), show(f.consumer))
	t := newTable("PRODUCER", "ID", "PROCESSED")
	for _, record := range found {
		t.add(show(record.Producer), show(record.ID), timeText(record.Processed))
	}
	if err := t.write(f.app.err, f.app.colours(f.app.err)); err != nil {
		return err
	}
	if more := f.result.Matched - int64(len(found)); more > 0 {
		fmt.Fprintf(f.app.err, "... and %d more\n", more)
	}
	return nil
}

// find counts in f.result, and returns the first few.
func (f *forgetting) find(ctx context.Context, identities *retention.Identities) (found []retention.Record, err error) {
	if len(f.identities) > 0 {
		return f.findIDs(ctx, identities)
	}
	ctx, cancel := f.app.step(ctx)
	defer cancel()
	if f.result.Matched, err = identities.CountRange(ctx, f.consumer, f.from, f.to); err != nil || f.consent.yes {
		return nil, err
	}
	return identities.List(ctx, retention.Filter{Consumer: f.consumer, From: f.from, To: f.to, Limit: previewed})
}

func (f *forgetting) findIDs(ctx context.Context, identities *retention.Identities) (found []retention.Record, err error) {
	ctx, cancel := f.app.step(ctx)
	defer cancel()
	refused := &retention.ForgetError{Consumer: f.consumer}
	for _, identity := range f.identities {
		record, err := identities.Find(ctx, f.consumer, identity)
		if errors.Is(err, retention.ErrNotFound) {
			refused.Missing = append(refused.Missing, identity)
			continue
		}
		if err != nil {
			return nil, err
		}
		found = append(found, record)
	}
	if len(refused.Missing) > 0 {
		return nil, refused
	}
	f.result.Matched = int64(len(found))
	return found[:min(previewed, len(found))], nil
}

func (f *forgetting) forget(ctx context.Context, identities *retention.Identities) error {
	if len(f.identities) > 0 {
		step, cancel := f.app.batch(ctx)
		defer cancel()
		if err := identities.Forget(step, f.consumer, f.identities...); err != nil {
			return err
		}
		f.result.Changed = f.result.Matched
		return nil
	}
	bar := f.app.progress("forget", f.result.Matched)
	defer bar.end()
	work, stop := untilSignal(ctx)
	defer stop()
	observer := &follower{ctx: ctx, stop: stop, seen: func(batch retention.Batch) { bar.add(int64(batch.Removed)) }}
	var err error
	f.result.Changed, err = identities.WithObserver(observer).ForgetRange(work, f.consumer, f.from, f.to)
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return exit(exitInterrupted, "interrupted: %d of %s are forgotten", f.result.Changed, countIdentities(f.result.Matched))
	case err != nil:
		return fmt.Errorf("%d of %s are forgotten, and perhaps those of a last batch: %w", f.result.Changed, countIdentities(f.result.Matched), err)
	}
	return nil
}

func (f *forgetting) print() error {
	return f.app.print(f.result, func() error {
		if f.result.DryRun {
			return f.app.printf("%s would be forgotten.\n", countIdentities(f.result.Matched))
		}
		return f.app.printf("%s forgotten.\n", countIdentities(f.result.Changed))
	})
}

func countIdentities(n int64) string {
	if n == 1 {
		return "1 identity"
	}
	return fmt.Sprintf("%d identities", n)
}

func identityNames(identities []inbox.Identity) string {
	var names []string
	for _, identity := range identities {
		names = append(names, identityName(identity))
	}
	return strings.Join(names, ", ")
}

func identityName(identity inbox.Identity) string {
	if identity.Producer == "" {
		return show(identity.ID)
	}
	return show(identity.Producer) + " / " + show(identity.ID)
}
