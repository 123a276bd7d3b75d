package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) initCommand() *cobra.Command {
	var (
		kinds     []string
		printOnly bool
	)
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create the tables, or print their DDL",
		Long: `Creates the tables that do not exist yet, and verifies all. It changes no existing table, and is safe to run again and by many at once.

With --print it prints the script instead, for migrations of your own. Then only the scheme of the DSN counts (INBOX_DSN=postgres:), and no
database is asked.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := validateKinds(kinds); err != nil {
				return err
			}
			if printOnly {
				return a.printDDL(kinds)
			}
			return a.initialize(cmd.Context(), kinds)
		},
	}
	tablesFlag(cmd, &kinds)
	cmd.Flags().BoolVar(&printOnly, "print", false, "print the DDL and change nothing")
	return cmd
}

func (a *app) printDDL(kinds []string) error {
	_, schema, err := a.dialect()
	if err != nil {
		return err
	}
	var scripts []string
	for _, kind := range kinds {
		script := strings.TrimSpace(ddl(schema, kind))
		if !strings.HasSuffix(script, ";") {
			script += ";"
		}
		scripts = append(scripts, script+"\n")
	}
	script := strings.Join(scripts, "\n")
	return a.print(map[string]string{"ddl": script}, func() error { return a.printf("%s", script) })
}

func (a *app) initialize(ctx context.Context, kinds []string) error {
	db, err := a.open(ctx, true)
	if err != nil {
		return err
	}
	defer db.close()
	var report tablesReport
	for _, kind := range kinds {
		before, err := a.look(ctx, db, kind)
		if err != nil {
			return err
		}
		if err := a.initializeOne(ctx, db, kind); err != nil {
			return err
		}
		if before.State == "missing" {
			before.State = "created"
		}
		report.Tables = append(report.Tables, before)
	}
	return a.printTables(report)
}

func (a *app) initializeOne(ctx context.Context, db *database, kind string) error {
	table, err := a.initializer(db, kind)
	if err != nil {
		return err
	}
	ctx, cancel := a.step(ctx)
	defer cancel()
	return table.InitializeSchema(ctx)
}
