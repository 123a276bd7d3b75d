package main

import (
	"cmp"
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
)

// app is what all commands share: where they read and write, and the flags that all of them have.
type app struct {
	in, out, err *os.File
	getenv       func(string) string
	parsed       bool // cobra has understood the command line

	flags struct {
		dsn      string
		messages string
		pending  string
		outgoing string
		output   string
		timeout  time.Duration
	}
}

const about = `inboxctl shows and repairs the tables of an inbox: who has processed what, what waits, and what is dead.

It works on PostgreSQL, MySQL, MariaDB and SQLite. Name the database with the environment variable INBOX_DSN. There is --dsn, too,
but every user of the machine can read the arguments of a process, and a password among them:

  postgres://user:password@host:5432/database
  mysql://user:password@host:3306/database     or mysql:user:password@tcp(host:3306)/database, the form of the driver
  sqlite:path/to/file.db                       or file:path/to/file.db?..., the form of SQLite

Names that are not printable are shown, and can be given, as quoted Go strings, such as "\xff\x00".

Exit codes:
  0    done
  1    the database cannot be reached, gave an error, or did not answer within --timeout
  2    usage: a wrong command, flag, argument or DSN
  3    a table is missing or has another shape
  4    nothing found: no such consumer, message or identity
  5    nothing was changed: the question was not answered with yes, or nobody can be asked and --yes is not given; or a waiting
       message has the identity to forget, or another sweeper is at work
  6    the database did not answer to COMMIT: all or nothing was changed, look before you try again
  130  interrupted while it worked; the error says what was done

An error is one line on standard error. Colours and the progress bar are for terminals only; NO_COLOR switches colours off.`

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:           "inboxctl",
		Short:         "Shows and repairs the tables of an inbox",
		Long:          about,
		Version:       version(),
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(*cobra.Command, []string) error { return usage("no command given (see inboxctl help)") },
		PersistentPreRunE: func(*cobra.Command, []string) error {
			a.parsed = true
			return a.validate()
		},
	}
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetVersionTemplate("inboxctl {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true

	flags := root.PersistentFlags()
	flags.SortFlags = false
	flags.StringVar(&a.flags.dsn, "dsn", "", "the database; better, because nobody else can read it: INBOX_DSN")
	flags.StringVar(&a.flags.messages, "messages-table", "", "table of identities, default inbox_messages (INBOX_MESSAGES_TABLE)")
	flags.StringVar(&a.flags.pending, "pending-table", "", "table of received messages, default inbox_pending (INBOX_PENDING_TABLE)")
	flags.StringVar(&a.flags.outgoing, "outgoing-table", "", "table of produced messages, default inbox_outgoing (INBOX_OUTGOING_TABLE)")
	flags.StringVarP(&a.flags.output, "output", "o", "table", "table or json")
	flags.DurationVar(&a.flags.timeout, "timeout", 30*time.Second, "how long one step may take: to connect, to read, or one transaction that changes rows")

	root.AddCommand(a.initCommand(), a.verifyCommand(), a.statusCommand(), a.listCommand(), a.showCommand(), a.redriveCommand(), a.discardCommand(),
		a.forgetCommand(), a.cleanCommand())
	return root
}

func (a *app) validate() error {
	if a.flags.output != "table" && a.flags.output != "json" {
		return usage("--output %q is neither table nor json", a.flags.output)
	}
	if a.flags.timeout <= 0 {
		return usage("--timeout %s is not positive", a.flags.timeout)
	}
	return nil
}

func (a *app) json() bool { return a.flags.output == "json" }

// step bounds one step of the work.
func (a *app) step(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, a.flags.timeout)
}

// batch bounds one transaction that changes rows. A signal does not end it, so that it is known what was done.
func (a *app) batch(ctx context.Context) (context.Context, context.CancelFunc) {
	return a.step(context.WithoutCancel(ctx))
}

func (a *app) dsn() string { return a.setting(a.flags.dsn, "INBOX_DSN") }

// setting is a flag, or if it is not given an environment variable.
func (a *app) setting(flag, variable string) string { return cmp.Or(flag, a.getenv(variable)) }

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
