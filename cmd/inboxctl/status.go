package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/retention"
)

// consumerReport is a line of status. A number that is not known is null.
type consumerReport struct {
	Consumer          string       `json:"consumer"`
	ConsumerBase64    []byte       `json:"consumer_base64,omitempty"`
	ProcessedLastHour *int64       `json:"processed_last_hour"`
	Identities        *int64       `json:"identities_estimate"`
	Queue             *queueReport `json:"queue"`

	name string
}

// queueReport is what waits for a consumer, over all topics.
type queueReport struct {
	Pending        int64   `json:"pending"`
	Suspect        int64   `json:"suspect"`
	Waiting        int64   `json:"waiting"`
	Claimed        int64   `json:"claimed"`
	Dead           int64   `json:"dead"`
	Stripped       int64   `json:"stripped"`
	OldestSeconds  float64 `json:"oldest_seconds"`
	OverdueSeconds float64 `json:"overdue_seconds"`

	oldest, overdue time.Duration
}

func (r *queueReport) add(c deferred.Count) {
	r.Pending += c.Pending
	r.Suspect += c.Suspect
	r.Waiting += c.Waiting
	r.Claimed += c.Claimed
	r.Dead += c.Dead
	r.Stripped += c.Stripped
	r.oldest, r.overdue = max(r.oldest, c.Oldest), max(r.overdue, c.Overdue)
	r.OldestSeconds, r.OverdueSeconds = r.oldest.Seconds(), r.overdue.Seconds()
}

func (a *app) statusCommand() *cobra.Command {
	var queueName, consumer string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "One line a consumer: processed, pending, claimed, dead, oldest",
		Long: `Shows one line for each consumer that has processed something, or has messages in the queue, over all its topics.

  LAST HOUR  how many messages it processed in the last hour. There is no index on time, so this reads all its identities; ? if there is no answer
             within --timeout, which is for all consumers together
  TOTAL      about how many identities there are, as the planner of the database assumes; on SQLite exactly
  PENDING    wait for their time, their next attempt or a free worker, suspects among them, whose last worker disappeared
  WAITING    wait for an earlier message with the same ordering key
  CLAIMED    are with a worker
  DEAD       are not tried any more, stripped ones among them
  OLDEST     age of the oldest message that is not dead
  OVERDUE    for how long nobody has attended to a message whose time has come

Where there is no pending table at all, as without deferred mode, its columns are "-". With --queue outgoing the lines are those of the relays.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			queue, err := queueOf(queueName)
			if err != nil {
				return err
			}
			if consumer, err = name("consumer", consumer); err != nil {
				return err
			}
			needed := cmd.Flags().Changed("queue") || a.setting(a.flags.pending, "INBOX_PENDING_TABLE") != ""
			return a.with(cmd.Context(), func(db *database) error { return a.status(cmd.Context(), db, queue, needed, consumer) })
		},
	}
	queueFlag(cmd, &queueName)
	cmd.Flags().StringVar(&consumer, "consumer", "", "only this one")
	return cmd
}

func (a *app) status(ctx context.Context, db *database, queue deferred.Queue, queueNeeded bool, consumer string) error {
	var reports []*consumerReport
	if queue == deferred.Pending {
		identities, err := a.identities(ctx, db)
		if err != nil {
			return err
		}
		if reports, err = a.processed(ctx, identities, consumer); err != nil {
			return err
		}
	}
	reports, err := a.waiting(ctx, db, queue, queueNeeded, reports)
	if err != nil {
		return err
	}
	if consumer != "" {
		reports = slices.DeleteFunc(reports, func(r *consumerReport) bool { return r.name != consumer })
		if len(reports) == 0 {
			return noSuchConsumer(consumer)
		}
	}
	slices.SortFunc(reports, func(a, b *consumerReport) int { return cmp.Compare(a.name, b.name) })
	return a.printStatus(reports)
}

// processed makes the reports of consumers that have processed something.
func (a *app) processed(ctx context.Context, identities *retention.Identities, only string) (reports []*consumerReport, err error) {
	step, cancel := a.step(ctx)
	defer cancel()
	names, err := identities.Consumers(step)
	if err != nil {
		return nil, err
	}
	for _, consumer := range names {
		if only != "" && consumer != only {
			continue
		}
		n, err := identities.Estimate(step, consumer)
		if err != nil {
			return nil, err
		}
		reports = append(reports, newReport(consumer))
		reports[len(reports)-1].Identities = &n
	}

	step, cancel = a.step(ctx)
	defer cancel()
	for _, report := range reports {
		n, err := identities.ProcessedSince(step, report.name, time.Hour)
		if err != nil && ctx.Err() == nil && errors.Is(step.Err(), context.DeadlineExceeded) {
			break // of this consumer and those behind it the number is not known
		}
		if err != nil {
			return nil, err
		}
		report.ProcessedLastHour = &n
	}
	return reports, nil
}

func newReport(consumer string) *consumerReport {
	return &consumerReport{name: consumer, Consumer: text(consumer), ConsumerBase64: exact(consumer)}
}

// waiting adds what is in the queue, where there is one.
func (a *app) waiting(ctx context.Context, db *database, queue deferred.Queue, needed bool, reports []*consumerReport) ([]*consumerReport, error) {
	kind := kindPending
	if queue == deferred.Outgoing {
		kind = kindOutgoing
	}
	table, err := a.look(ctx, db, kind)
	if err != nil {
		return nil, err
	}
	if table.State == "missing" && !needed {
		return reports, nil
	}
	store, err := a.store(ctx, db, queue)
	if err != nil {
		return nil, err
	}
	counts, err := a.counts(ctx, store)
	if err != nil {
		return nil, err
	}
	for _, report := range reports {
		report.Queue = &queueReport{}
	}
	for _, c := range counts {
		i := slices.IndexFunc(reports, func(r *consumerReport) bool { return r.name == c.Consumer })
		if i < 0 {
			i = len(reports)
			reports = append(reports, newReport(c.Consumer))
			reports[i].Queue = &queueReport{}
			if queue == deferred.Pending {
				reports[i].ProcessedLastHour, reports[i].Identities = new(int64), new(int64)
			}
		}
		reports[i].Queue.add(c)
	}
	return reports, nil
}

func (a *app) printStatus(reports []*consumerReport) error {
	if reports == nil {
		reports = []*consumerReport{}
	}
	return a.print(map[string]any{"consumers": reports}, func() error {
		t := newTable("CONSUMER", "LAST HOUR", "TOTAL", "PENDING", "WAITING", "CLAIMED", "DEAD", "OLDEST", "OVERDUE")
		for _, r := range reports {
			number := func(n int64) string { return strconv.FormatInt(n, 10) }
			lastHour, total := "-", "-"
			if r.Identities != nil {
				lastHour, total = "?", number(*r.Identities)
			}
			if r.ProcessedLastHour != nil {
				lastHour = number(*r.ProcessedLastHour)
			}
			cells := []string{show(r.name), lastHour, total, "-", "-", "-", "-", "-", "-"}
			if q := r.Queue; q != nil {
				cells = append(cells[:3], number(q.Pending+q.Suspect), number(q.Waiting), number(q.Claimed), number(q.Dead+q.Stripped), ageText(q.oldest), ageText(q.overdue))
			}
			t.add(cells...)
			if r.Queue != nil && r.Queue.Dead+r.Queue.Stripped > 0 {
				t.alarm()
			}
		}
		return a.printTable(t)
	})
}
