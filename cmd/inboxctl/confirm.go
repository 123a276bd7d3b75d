package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// consent is how a command that changes rows gets leave to do it.
type consent struct{ yes, dryRun bool }

func (c *consent) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "only say what would be done")
}

// possible refuses before anything is read, where nobody can be asked.
func (a *app) possible(c consent, what string) error {
	if c.yes && c.dryRun {
		return usage("give --yes or --dry-run, not both")
	}
	if c.yes || c.dryRun || isTerminal(a.in) && isTerminal(a.err) {
		return nil
	}
	return exit(exitRefused, "%s: nobody can be asked, because standard input and error are no terminal: give --yes, or --dry-run to see what would be done", what)
}

// confirm asks on standard error. Only a line that is yes is a yes. A signal is a no.
func (a *app) confirm(ctx context.Context, c consent, what string) error {
	if c.yes {
		return nil
	}
	fmt.Fprintf(a.err, "Type yes to %s: ", what)
	answer := make(chan string, 1)
	go func() { // ends with the line, or with the process
		line, _ := bufio.NewReader(a.in).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		if !strings.HasSuffix(line, "\n") {
			fmt.Fprintln(a.err)
		}
		// A signal and the end of the line that it causes come in any order.
		if strings.TrimSpace(line) == "yes" && ctx.Err() == nil {
			return nil
		}
	case <-ctx.Done():
		fmt.Fprintln(a.err)
	}
	return exit(exitRefused, "not confirmed, nothing was changed")
}
