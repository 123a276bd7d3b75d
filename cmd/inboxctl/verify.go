package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) verifyCommand() *cobra.Command {
	var kinds []string
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Compare the live tables with the DDL",
		Long: `Compares the live tables with what init creates, says what differs and why it matters, and changes nothing. The exit code is 3 if a table
is missing or differs. A service without deferred mode has only one table: --tables messages.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := validateKinds(kinds); err != nil {
				return err
			}
			return a.with(cmd.Context(), func(db *database) error { return a.verify(cmd.Context(), db, kinds) })
		},
	}
	tablesFlag(cmd, &kinds)
	return cmd
}

func (a *app) verify(ctx context.Context, db *database, kinds []string) error {
	var (
		report tablesReport
		wrong  []string
	)
	for _, kind := range kinds {
		one, err := a.look(ctx, db, kind)
		if err != nil {
			return err
		}
		report.Tables = append(report.Tables, one)
		if one.State != "ok" {
			wrong = append(wrong, fmt.Sprintf("%s is %s", one.Table, one.State))
		}
	}
	if err := a.printTables(report); err != nil {
		return err
	}
	if len(wrong) > 0 {
		return exit(exitTable, "%s", strings.Join(wrong, ", "))
	}
	return nil
}
