package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run()) }

// run is main with an exit code, so that what is deferred runs.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal ends the work in an orderly way, the second one at once.
	context.AfterFunc(ctx, stop)

	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, getenv: os.Getenv}
	err := a.command().ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	code, text := explain(ctx, a, err)
	hidden := newSecrets(append(os.Args[1:], a.dsn(), "--dsn="+os.Getenv("PGPASSWORD"))...)
	fmt.Fprintln(os.Stderr, "inboxctl: "+hidden.oneLine(text))
	return code
}
