package main

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/retention"
)

// noArguments is cobra.NoArgs with an error that quotes nothing: what stands there may be a DSN.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%s takes no arguments, only flags (see inboxctl help %s)", cmd.Name(), cmd.Name())
	}
	return nil
}

func (a *app) counts(ctx context.Context, store *deferred.Store) ([]deferred.Count, error) {
	ctx, cancel := a.step(ctx)
	defer cancel()
	return store.Count(ctx)
}

// checkConsumer tells an unknown consumer from one that has nothing in the queue. No consumer at all is known.
func (a *app) checkConsumer(ctx context.Context, db *database, store *deferred.Store, consumer string) error {
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
	table, err := a.look(ctx, db, kindMessages)
	if err != nil {
		return err
	}
	if table.State != "ok" { // a relay needs none
		return noSuchConsumer(consumer)
	}
	identities, err := retention.NewIdentities(db.pool, db.schema, nil)
	if err != nil {
		return err
	}
	return a.checkProcessed(ctx, identities, consumer)
}

// checkIdentities is checkConsumer for commands on identities: one that has messages in the pending table only is known, too.
func (a *app) checkIdentities(ctx context.Context, db *database, identities *retention.Identities, consumer string) error {
	table, err := a.look(ctx, db, kindPending)
	if err != nil {
		return err
	}
	if table.State != "ok" {
		return a.checkProcessed(ctx, identities, consumer)
	}
	store, err := a.store(ctx, db, deferred.Pending)
	if err != nil {
		return err
	}
	return a.checkConsumer(ctx, db, store, consumer)
}

func (a *app) checkProcessed(ctx context.Context, identities *retention.Identities, consumer string) error {
	ctx, cancel := a.step(ctx)
	defer cancel()
	records, err := identities.List(ctx, retention.Filter{Consumer: consumer, Limit: 1})
	if err == nil && len(records) == 0 {
		err = noSuchConsumer(consumer)
	}
	return err
}

func noSuchConsumer(consumer string) error {
	return exit(exitNothing, "there is no consumer %s", show(consumer))
}
