package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/watermill-inbox/inbox/deferred"
)

// selection is the filter of list, redrive and discard as it is given on the command line.
type selection struct {
	queue, consumer, topic, reason string
	states                         []string
}

func (s *selection) flags(cmd *cobra.Command) {
	queueFlag(cmd, &s.queue)
	cmd.Flags().StringVar(&s.consumer, "consumer", "", "only of this consumer")
	cmd.Flags().StringVar(&s.topic, "topic", "", "only of this topic")
	cmd.Flags().StringVar(&s.reason, "reason", "", "only with this text in the reason or the last error")
	cmd.Flags().StringSliceVar(&s.states, "state", nil, "only in these states: pending, suspect, claimed, waiting, dead, stripped")
}

func queueFlag(cmd *cobra.Command, queue *string) {
	cmd.Flags().StringVar(queue, "queue", "pending", "pending (received messages) or outgoing (produced messages)")
}

// filter reads the names. The texts of reasons are compared by matches.
func (s *selection) filter() (deferred.Queue, deferred.Filter, error) {
	var filter deferred.Filter
	queue, err := queueOf(s.queue)
	if err != nil {
		return queue, filter, err
	}
	if filter.Consumer, err = name("consumer", s.consumer); err != nil {
		return queue, filter, err
	}
	if filter.Topic, err = name("topic", s.topic); err != nil {
		return queue, filter, err
	}
	for _, text := range s.states {
		state, err := stateOf(text)
		if err != nil {
			return queue, filter, err
		}
		filter.States = append(filter.States, state)
	}
	return queue, filter, nil
}

func (s *selection) matches(m deferred.StoredMessage) bool {
	return strings.Contains(m.Reason, s.reason) || strings.Contains(m.LastError, s.reason)
}

// pageSize is how many messages are read at a time.
const pageSize = 500

// collect reads messages page by page, at most limit; 0: all.
func (a *app) collect(ctx context.Context, store *deferred.Store, s *selection, filter deferred.Filter, limit int) ([]deferred.StoredMessage, error) {
	var found []deferred.StoredMessage
	for {
		filter.Limit = pageSize
		if s.reason == "" && limit > 0 {
			filter.Limit = min(pageSize, limit-len(found))
		}
		page, err := a.page(ctx, store, filter)
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			filter.After = m.Number
			if s.matches(m) {
				found = append(found, m)
			}
			if limit > 0 && len(found) == limit {
				return found, nil
			}
		}
		if len(page) < filter.Limit {
			return found, nil
		}
	}
}

func (a *app) page(ctx context.Context, store *deferred.Store, filter deferred.Filter) ([]deferred.StoredMessage, error) {
	ctx, cancel := a.step(ctx)
	defer cancel()
	return store.List(ctx, filter)
}

func (a *app) listCommand() *cobra.Command {
	var (
		s     selection
		after int64
		limit int
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List messages that wait or are dead",
		Long: `Lists messages in the order of their reception. NUMBER names a message for show, redrive and discard. DUE is when it is available, when its
lease ends, or when it died, depending on its state. A stripped message is dead, too, but its payload is removed, so that it can only be discarded.`,
		Example: "  inboxctl list --consumer reserve-stock --state dead\n  inboxctl list --queue outgoing --limit 1000 --output json",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			queue, filter, err := s.filter()
			if err != nil {
				return err
			}
			if limit <= 0 {
				return usage("--limit %d is not positive", limit)
			}
			filter.After = after
			return a.with(cmd.Context(), func(db *database) error { return a.list(cmd.Context(), db, queue, &s, filter, limit) })
		},
	}
	s.flags(cmd)
	cmd.Flags().Int64Var(&after, "after", 0, "go on behind this number, where the last list ended")
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most")
	return cmd
}

func (a *app) list(ctx context.Context, db *database, queue deferred.Queue, s *selection, filter deferred.Filter, limit int) error {
	store, err := a.store(ctx, db, queue)
	if err != nil {
		return err
	}
	found, err := a.collect(ctx, store, s, filter, limit)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		if err := a.checkConsumer(ctx, db, store, filter.Consumer); err != nil {
			return err
		}
	}
	return a.printMessages(found, limit)
}

func (a *app) printMessages(found []deferred.StoredMessage, limit int) error {
	document := messageList{Messages: []messageReport{}}
	for _, m := range found {
		document.Messages = append(document.Messages, reportOf(m))
	}
	if len(found) == limit {
		document.NextAfter = &found[len(found)-1].Number
	}
	return a.print(document, func() error {
		if err := a.printTable(messageTable(found)); err != nil || document.NextAfter == nil {
			return err
		}
		return a.printf("There may be more: --after %d\n", *document.NextAfter)
	})
}

// messageTable is for reading. A line has no last error, which can have any length; show does.
func messageTable(messages []deferred.StoredMessage) *table {
	t := newTable("NUMBER", "STATE", "CONSUMER", "TOPIC", "ID", "ATTEMPTS", "RECEIVED", "DUE", "BYTES", "REASON")
	for _, m := range messages {
		reason := "-"
		if m.Reason != "" {
			reason = show(m.Reason)
		}
		t.add(strconv.FormatInt(m.Number, 10), m.State.String(), show(m.Consumer), show(m.Topic), identityName(m.Identity), strconv.Itoa(m.Attempts),
			timeText(m.Received), timeText(m.Due), strconv.Itoa(m.Size), reason)
		if m.State >= deferred.StateDead {
			t.alarm()
		}
	}
	return t
}
