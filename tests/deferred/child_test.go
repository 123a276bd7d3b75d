package deferred_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
)

// childConfig is what a process of the service finds in its environment.
type childConfig struct {
	Role     string // a key of roles
	Database string // a key of databases
	DSN      string
	Node     nodeConfig

	// For the role "script": its number, and where it is killed: at the n-th point that it passes, or at the first point with a name.
	Run       int
	KillAt    int
	KillPoint string
}

// roles are what a child can be.
var roles = map[string]func(config childConfig) error{
	"script": runScript,
	"exits":  runExiting,
	"worker": runWorker,
}

func runChild(text string) error {
	var config childConfig
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return err
	}
	return roles[config.Role](config)
}

// awaitStop returns when the test wants a clean shutdown, or is gone.
func awaitStop() { _, _ = io.Copy(io.Discard, os.Stdin) }

// child is such a process, seen from the test.
type child struct {
	command *exec.Cmd
	stdin   io.Closer
	stderr  bytes.Buffer  // to be read when it has ended
	ended   chan struct{} // closed when the process is gone and all that it printed is read
	err     error         // how it ended
}

// startChild calls said for each line that the process prints.
func startChild(config childConfig, said func(line string)) (*child, error) {
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	c := &child{command: exec.Command(os.Args[0]), ended: make(chan struct{})}
	c.command.Env = append(os.Environ(), childVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	c.command.Stderr = &c.stderr
	if c.stdin, err = c.command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			said(lines.Text())
		}
		c.err = c.command.Wait()
		close(c.ended)
	}()
	return c, nil
}

// kill is SIGKILL.
func (c *child) kill() {
	_ = c.command.Process.Kill()
	<-c.ended
}

// stop is a clean shutdown.
func (c *child) stop() error {
	_ = c.stdin.Close()
	<-c.ended
	if c.err != nil {
		return fmt.Errorf("a child was stopped: %w\n%s", c.err, c.stderr.String())
	}
	return nil
}

// say prints a line at once, so that what was said before a SIGKILL is not lost.
func say(format string, args ...any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Printf(format+"\n", args...)
}

var saying sync.Mutex

// childLogger writes errors to the standard error, which the test shows when it fails.
func childLogger() watermill.LoggerAdapter {
	return watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
}
