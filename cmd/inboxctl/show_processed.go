package main

import (
	"context"
	"errors"
	"time"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/retention"
)

// processedQuestion is an identity as it is given on the command line.
type processedQuestion struct{ consumer, producer, id string }

// processedReport is a processed identity in JSON.
type processedReport struct {
	Consumer       string    `json:"consumer"`
	ConsumerBase64 []byte    `json:"consumer_base64,omitempty"`
	Producer       string    `json:"producer"`
	ProducerBase64 []byte    `json:"producer_base64,omitempty"`
	ID             string    `json:"id"`
	IDBase64       []byte    `json:"id_base64,omitempty"`
	State          string    `json:"state"` // always processed
	Processed      time.Time `json:"processed"`
	Fingerprint    string    `json:"fingerprint"`
}

func (a *app) showProcessed(ctx context.Context, question processedQuestion) error {
	consumer, err := name("consumer", question.consumer)
	if err != nil {
		return err
	}
	if consumer == "" {
		return usage("--id needs --consumer")
	}
	wanted, err := identitiesOf(question.producer, []string{question.id})
	if err != nil {
		return err
	}
	return a.with(ctx, func(db *database) error {
		identities, err := a.identities(ctx, db)
		if err != nil {
			return err
		}
		step, cancel := a.step(ctx)
		defer cancel()
		record, err := identities.Find(step, consumer, wanted[0])
		if errors.Is(err, retention.ErrNotFound) {
			return notProcessed(consumer, wanted[0])
		}
		if err != nil {
			return err
		}
		return a.printProcessed(consumer, record)
	})
}

func notProcessed(consumer string, identity inbox.Identity) error {
	return exit(exitNothing, "consumer %s has not processed %s, or does not remember it", show(consumer), identityName(identity))
}

func (a *app) printProcessed(consumer string, record retention.Record) error {
	report := processedReport{
		Consumer: text(consumer), ConsumerBase64: exact(consumer),
		Producer: text(record.Producer), ProducerBase64: exact(record.Producer),
		ID: text(record.ID), IDBase64: exact(record.ID),
		State: "processed", Processed: record.Processed.UTC(), Fingerprint: record.Fingerprint.String(),
	}
	return a.print(report, func() error {
		return a.printf("state         processed\nconsumer      %s\nproducer      %s\nid            %s\nprocessed     %s\nfingerprint   %s\n",
			show(consumer), show(record.Producer), show(record.ID), timeText(record.Processed), show(report.Fingerprint))
	})
}
