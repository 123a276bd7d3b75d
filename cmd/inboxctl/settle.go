package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/watermill-inbox/inbox/deferred"
)

// act is redrive or discard.
type act struct {
	verb, done string           // "discard", "discarded"
	states     []deferred.State // that it takes
	run        func(store *deferred.Store, ctx context.Context, numbers ...int64) error
}

const howToSelect = `

Select them by their numbers, as list shows them, or by filters. Filters select dead messages only, those that are dead when the command starts; with
nothing but --consumer give --all, too. Numbers are all or nothing: if one of them is not dead, nothing is changed. What filters select is changed in
batches; a message that somebody else has changed meanwhile is left alone, and counted as skipped.`

func (a *app) redriveCommand() *cobra.Command {
	return a.actCommand(act{"redrive", "redriven", []deferred.State{deferred.StateDead}, (*deferred.Store).Redrive}, "Make dead messages pending again",
		"Makes dead messages pending again: same identity, no attempts, available at once. Remove the cause of their death first."+howToSelect)
}

func (a *app) discardCommand() *cobra.Command {
	return a.actCommand(act{"discard", "discarded", []deferred.State{deferred.StateDead, deferred.StateStripped}, (*deferred.Store).Discard}, "Remove dead messages for good",
		"Removes dead messages for good, unprocessed, stripped ones among them. Their identities are not recorded, so a redelivery by the broker is a new message."+howToSelect)
}

func (a *app) actCommand(what act, short, long string) *cobra.Command {
	var (
		s   selection
		c   consent
		all bool
	)
	cmd := &cobra.Command{
		Use:   what.verb + " [NUMBER...]",
		Short: short,
		Long:  long,
		Example: fmt.Sprintf("  inboxctl %[1]s 17 23\n  inboxctl %[1]s --consumer reserve-stock --reason 'no prices yet'\n"+
			"  inboxctl %[1]s --consumer reserve-stock --all --yes --output json", what.verb),
		RunE: func(cmd *cobra.Command, args []string) error {
			numbers, err := numbersOf(args)
			if err != nil {
				return err
			}
			if err := s.validateFor(what, len(numbers) > 0, all); err != nil {
				return err
			}
			queue, filter, err := s.filter()
			if err != nil {
				return err
			}
			if err := a.possible(c, what.verb); err != nil {
				return err
			}
			if len(filter.States) == 0 {
				filter.States = what.states
			}
			return a.with(cmd.Context(), func(db *database) error {
				w := work{app: a, what: what, consent: c, queue: queue, selection: &s, filter: filter, numbers: numbers}
				return w.run(cmd.Context(), db)
			})
		},
	}
	s.flags(cmd)
	cmd.Flags().Lookup("state").Usage = "only in these states: " + what.stateNames()
	cmd.Flags().BoolVar(&all, "all", false, "all dead messages of the --consumer")
	c.flags(cmd)
	return cmd
}

func (what act) stateNames() string {
	var names []string
	for _, state := range what.states {
		names = append(names, state.String())
	}
	return strings.Join(names, ", ")
}

func (s *selection) validateFor(what act, numbers, all bool) error {
	narrow := s.topic != "" || s.reason != ""
	for _, state := range s.states {
		if !slices.ContainsFunc(what.states, func(possible deferred.State) bool { return possible.String() == state }) {
			return usage("--state %q: %s takes dead messages only: %s", state, what.verb, what.stateNames())
		}
	}
	switch {
	case numbers && (narrow || all || s.consumer != "" || len(s.states) > 0):
		return usage("give numbers or filters, not both")
	case numbers:
		return nil
	case all && s.consumer == "":
		return usage("--all needs --consumer: there is no %s for all consumers at once", what.verb)
	case !narrow && !all && s.consumer != "":
		return usage("--consumer alone is every dead message of it: give --all if you mean that, or --topic or --reason")
	case !narrow && !all:
		return usage("%s what? Give numbers, or --topic, --reason, or --consumer with --all", what.verb)
	}
	return nil
}

// work is one run of an act.
type work struct {
	app       *app
	what      act
	consent   consent
	queue     deferred.Queue
	selection *selection
	filter    deferred.Filter
	numbers   []int64 // given on the command line

	result actResult
}

// actResult is what redrive and discard print.
type actResult struct {
	Action  string `json:"action"`
	Queue   string `json:"queue"`
	DryRun  bool   `json:"dry_run"`
	Matched int    `json:"matched"`
	Changed int    `json:"changed"`
	Skipped int    `json:"skipped"` // not dead any more when their turn came
}

func (w *work) run(ctx context.Context, db *database) error {
	store, err := w.app.store(ctx, db, w.queue)
	if err != nil {
		return err
	}
	messages, err := w.messages(ctx, db, store)
	if err != nil {
		return err
	}
	w.result = actResult{Action: w.what.verb, Queue: w.selection.queue, DryRun: w.consent.dryRun, Matched: len(messages)}
	if !w.consent.yes {
		if err := w.preview(messages); err != nil {
			return err
		}
	}
	if w.consent.dryRun {
		return w.print()
	}
	if err := w.app.confirm(ctx, w.consent, fmt.Sprintf("%s %s", w.what.verb, count(len(messages), "message"))); err != nil {
		return err
	}
	if err := w.change(ctx, store, messages); err != nil {
		return w.printPart(err)
	}
	return w.print()
}

// printPart lets a program know what was done before the error. Others read it in the error.
func (w *work) printPart(err error) error {
	if !w.app.json() {
		return err
	}
	return errors.Join(err, w.print())
}

// messages returns what was selected, and refuses numbers of messages that are not dead.
func (w *work) messages(ctx context.Context, db *database, store *deferred.Store) ([]deferred.StoredMessage, error) {
	if len(w.numbers) > 0 {
		return w.named(ctx, store)
	}
	found, err := w.app.collect(ctx, store, w.selection, w.filter, 0)
	if err != nil || len(found) > 0 {
		return found, err
	}
	if err := w.app.checkConsumer(ctx, db, store, w.filter.Consumer); err != nil {
		return nil, err
	}
	return nil, exit(exitNothing, "no dead message matches")
}

func (w *work) named(ctx context.Context, store *deferred.Store) ([]deferred.StoredMessage, error) {
	var found []deferred.StoredMessage
	notDead := &deferred.NotDeadError{}
	for _, number := range w.numbers {
		page, err := w.app.page(ctx, store, deferred.Filter{After: number - 1, Limit: 1})
		if err != nil {
			return nil, err
		}
		if len(page) == 0 || page[0].Number != number || !slices.Contains(w.what.states, page[0].State) {
			notDead.Numbers = append(notDead.Numbers, number)
			continue
		}
		found = append(found, page[0])
	}
	if len(notDead.Numbers) > 0 {
		return nil, notDead
	}
	return found, nil
}

// previewed is how many messages a preview shows.
const previewed = 5

func (w *work) preview(messages []deferred.StoredMessage) error {
	fmt.Fprintf(w.app.err, "%s in the %s queue will be %s:\n", count(len(messages), "dead message"), w.selection.queue, w.what.done)
	if err := messageTable(messages[:min(previewed, len(messages))]).write(w.app.err, w.app.colours(w.app.err)); err != nil {
		return err
	}
	if more := len(messages) - previewed; more > 0 {
		fmt.Fprintf(w.app.err, "... and %d more\n", more)
	}
	return nil
}

// change runs the act. Named messages are one batch, because they are all or nothing.
func (w *work) change(ctx context.Context, store *deferred.Store, messages []deferred.StoredMessage) error {
	size := pageSize
	if len(w.numbers) > 0 {
		size = len(messages)
	}
	bar := w.app.progress(w.what.verb, int64(len(messages)))
	defer bar.end()
	for batch := range slices.Chunk(messages, size) {
		if ctx.Err() != nil {
			return exit(exitInterrupted, "interrupted: %d of %d messages are %s", w.result.Changed, len(messages), w.what.done)
		}
		if err := w.batch(ctx, store, batch); err != nil {
			if len(w.numbers) > 0 {
				return err
			}
			return fmt.Errorf("%d of %d messages are %s, and perhaps those of a last batch: %w", w.result.Changed, len(messages), w.what.done, err)
		}
		bar.add(int64(len(batch)))
	}
	return nil
}

func (w *work) batch(ctx context.Context, store *deferred.Store, messages []deferred.StoredMessage) error {
	var numbers []int64
	for _, m := range messages {
		numbers = append(numbers, m.Number)
	}
	for len(numbers) > 0 {
		step, cancel := w.app.batch(ctx)
		err := w.what.run(store, step, numbers...)
		cancel()
		var notDead *deferred.NotDeadError
		switch {
		case err == nil:
			w.result.Changed += len(numbers)
			return nil
		case len(w.numbers) > 0 || !errors.As(err, &notDead):
			return err
		}
		// Somebody else was faster with these. The others are tried again.
		gone := slices.Concat(notDead.Numbers, notDead.Stripped)
		numbers = slices.DeleteFunc(numbers, func(number int64) bool { return slices.Contains(gone, number) })
		w.result.Skipped += len(gone)
	}
	return nil
}

func (w *work) print() error {
	return w.app.print(w.result, func() error {
		if w.result.DryRun {
			return w.app.printf("%s would be %s.\n", count(w.result.Matched, "message"), w.what.done)
		}
		skipped := ""
		if w.result.Skipped > 0 {
			skipped = fmt.Sprintf(" %d skipped, because somebody else has changed them.", w.result.Skipped)
		}
		return w.app.printf("%s %s.%s\n", count(w.result.Changed, "message"), w.what.done, skipped)
	})
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
