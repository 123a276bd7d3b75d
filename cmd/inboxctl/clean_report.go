package main

import (
	"strconv"

	"github.com/watermill-inbox/inbox/retention"
)

// cleanReport is what clean prints as JSON.
type cleanReport struct {
	DryRun           bool                  `json:"dry_run"`
	OlderThanSeconds int64                 `json:"older_than_seconds"`
	Examined         int64                 `json:"examined"`
	Removed          int64                 `json:"removed"`
	Payloads         int64                 `json:"payloads"`
	Consumers        []cleanConsumerReport `json:"consumers"`
}

type cleanConsumerReport struct {
	Consumer       string `json:"consumer"`
	ConsumerBase64 []byte `json:"consumer_base64,omitempty"`
	Examined       int64  `json:"examined"`
	Removed        int64  `json:"removed"`
}

func (c *cleaning) print(report retention.Report) error {
	document := cleanReport{
		DryRun: report.DryRun, OlderThanSeconds: int64(c.horizon.Seconds()), Examined: report.Examined(), Removed: report.Removed(), Payloads: report.Payloads,
		Consumers: []cleanConsumerReport{},
	}
	for _, one := range report.Consumers {
		if one.Horizon != retention.Forever {
			document.Consumers = append(document.Consumers, cleanConsumerReport{text(one.Consumer), exact(one.Consumer), one.Examined, one.Removed})
		}
	}
	return c.app.print(document, func() error {
		if err := c.app.printTable(cleanTable(report)); err != nil {
			return err
		}
		done := "removed"
		if report.DryRun {
			done = "to remove"
		}
		if c.deadPayloads > 0 {
			return c.app.printf("%s and %s %s.\n", countIdentities(report.Removed()), count(int(report.Payloads), "payload"), done)
		}
		return c.app.printf("%s %s.\n", countIdentities(report.Removed()), done)
	})
}

// cleanTable leaves out consumers that were not looked at.
func cleanTable(report retention.Report) *table {
	removed := "REMOVED"
	if report.DryRun {
		removed = "TO REMOVE"
	}
	t := newTable("CONSUMER", "EXAMINED", removed)
	for _, one := range report.Consumers {
		if one.Horizon != retention.Forever {
			t.add(show(one.Consumer), strconv.FormatInt(one.Examined, 10), strconv.FormatInt(one.Removed, 10))
		}
	}
	return t
}
