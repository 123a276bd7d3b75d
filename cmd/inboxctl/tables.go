package main

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

// The kinds of tables, as --tables and JSON name them. Those of queues are the names that --queue has for them.
const (
	kindMessages = "messages"
	kindPending  = "pending"
	kindOutgoing = "outgoing"
)

func tablesFlag(cmd *cobra.Command, kinds *[]string) {
	cmd.Flags().StringSliceVar(kinds, "tables", []string{kindMessages, kindPending, kindOutgoing}, "which tables; without deferred mode there is only messages")
}

func validateKinds(kinds []string) error {
	for _, kind := range kinds {
		if !slices.Contains([]string{kindMessages, kindPending, kindOutgoing}, kind) {
			return usage("--tables: %q is none of messages, pending and outgoing", kind)
		}
	}
	if len(kinds) == 0 {
		return usage("--tables names none")
	}
	return nil
}

// initializer is what makes and verifies a table.
type initializer interface {
	InitializeSchema(ctx context.Context) error
	Verify(ctx context.Context) error
}

func (a *app) initializer(db *database, kind string) (initializer, error) {
	if queue, err := queueOf(kind); err == nil {
		return deferred.NewStore(db.pool, db.schema, queue, nil)
	}
	return a.inbox(db)
}

func ddl(schema deferred.Dialect, kind string) string {
	if queue, err := queueOf(kind); err == nil {
		return schema.QueueDDL(queue)
	}
	return schema.DDL()
}

func tableName(schema deferred.Dialect, kind string) string {
	if queue, err := queueOf(kind); err == nil {
		return schema.QueueTable(queue)
	}
	return schema.Table()
}

// tableReport is one table in the output of init and verify.
type tableReport struct {
	Kind        string   `json:"kind"`
	Table       string   `json:"table"`
	State       string   `json:"state"` // created, ok, missing, different
	Differences []string `json:"differences"`
}

// err is the error that the report was made of.
func (r tableReport) err() error {
	if r.State == "ok" {
		return nil
	}
	return &inbox.TableError{Table: r.Table, Differences: r.Differences}
}

type tablesReport struct {
	Tables []tableReport `json:"tables"`
}

func (a *app) printTables(report tablesReport) error {
	return a.print(report, func() error {
		t := newTable("TABLE", "STATE", "DIFFERENCES")
		for _, one := range report.Tables {
			t.add(one.Table, one.State, strings.Join(one.Differences, "; "))
			if one.State == "missing" || one.State == "different" {
				t.alarm()
			}
		}
		return a.printTable(t)
	})
}

// look verifies a table. Only errors that say nothing about the table are returned.
func (a *app) look(ctx context.Context, db *database, kind string) (tableReport, error) {
	report := tableReport{Kind: kind, Table: tableName(db.schema, kind), State: "ok", Differences: []string{}}
	made, err := a.initializer(db, kind)
	if err != nil {
		return report, err
	}
	ctx, cancel := a.step(ctx)
	defer cancel()
	err = made.Verify(ctx)
	var table *inbox.TableError
	switch {
	case err == nil:
	case !errors.As(err, &table):
		return report, err
	case table.Missing():
		report.State = "missing"
	default:
		report.State, report.Differences = "different", table.Differences
	}
	return report, nil
}
