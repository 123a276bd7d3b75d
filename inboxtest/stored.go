package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// stored returns the table of identities, each row with its fingerprint as the database gives it back.
func (f *fixture) stored(t *testing.T) []inbox.Row {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	all, err := f.readStored(ctx, "SELECT consumer, producer, message_id, fingerprint FROM "+inbox.DefaultMessagesTable)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (f *fixture) readStored(ctx context.Context, query string) (all []inbox.Row, err error) {
	tx, err := f.instance.Admin.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	found, err := tx.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	for found.Next() {
		var consumer, producer, id, fingerprint []byte
		if err := found.Scan(&consumer, &producer, &id, &fingerprint); err != nil {
			return nil, err
		}
		all = append(all, inbox.Row{Consumer: string(consumer), Producer: string(producer), ID: string(id), Fingerprint: string(fingerprint)})
	}
	return all, found.Err()
}

// wantStored stops the test unless the table has exactly these identities, byte for byte. It does not look at the fingerprints.
func (f *fixture) wantStored(t *testing.T, want ...inbox.Row) {
	t.Helper()
	missing := map[inbox.Row]bool{}
	for _, row := range want {
		missing[row] = true
	}
	for _, row := range f.stored(t) {
		row.Fingerprint = ""
		if !missing[row] {
			t.Fatalf("the table has an identity too many: %q", row)
		}
		delete(missing, row)
	}
	if len(missing) > 0 {
		t.Fatalf("the table lacks identities: %q", slices.Collect(maps.Keys(missing)))
	}
}

// wantSameRows stops the test unless the table of identities has not changed.
func (f *fixture) wantSameRows(t *testing.T, before []inbox.Row) {
	t.Helper()
	if after := f.stored(t); fmt.Sprintf("%q", after) != fmt.Sprintf("%q", before) {
		t.Fatalf("the stored identities changed from %q to %q", before, after)
	}
}

// writesStep is a handler for messages whose id the table biz cannot hold.
func (f *fixture) writesStep(msg *message.Message) ([]*message.Message, error) {
	return nil, f.write(msg.Context(), "any", 1)
}

// wantPermanent stops the test unless err says that the message itself is at fault.
func wantPermanent(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) || !inbox.IsPoison(err) || inbox.IsRetryable(err) {
		t.Fatalf("want a permanent error that is %q; got %v (poison %t, retryable %t)", target, err, inbox.IsPoison(err), inbox.IsRetryable(err))
	}
}

// wantNames stops the test unless err is an *inbox.Error of that stage that names consumer and message, in its fields and in its text.
func wantNames(t *testing.T, err error, want inbox.Error) {
	t.Helper()
	var got *inbox.Error
	if !errors.As(err, &got) {
		t.Fatalf("want an *inbox.Error; got %T: %v", err, err)
	}
	if got.Consumer != want.Consumer || got.Identity != want.Identity || got.Stage != want.Stage {
		t.Fatalf("want an error of consumer %q, message %q, stage %q; got %+v", want.Consumer, want.Identity, want.Stage, got)
	}
	wantWords(t, err, fmt.Sprintf("%q", want.Consumer), fmt.Sprintf("%q", want.Identity.ID), string(want.Stage))
}

// errors makes the errors visible that the Router only logs. It must be called before the inbox is added.
func (r *router) errors() <-chan error {
	errs := make(chan error, 1024)
	r.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			errs <- err
			return produced, err
		}
	})
	return errs
}

// wantWords stops the test unless err tells all of that.
func wantWords(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("want an error with %q; got none", words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("want an error with %q; got: %v", word, err)
		}
	}
}
