package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

var update = flag.Bool("update", false, "write what the program prints to testdata")

const golden = "testdata/output.txt"

// TestMain lets the test binary be the program itself when command starts it.
func TestMain(m *testing.M) {
	if os.Getenv("QUICKSTART") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func command(t *testing.T, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "QUICKSTART=1")
	cmd.Stdout, cmd.Stderr = &out, &errOut

	var exitErr *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exitErr) {
		t.Fatal(err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

func TestProgram_tells_the_story_and_exits_with_0(t *testing.T) {
	t.Parallel()

	stdout, stderr, exit := command(t)
	if exit != 0 || stderr != "" {
		t.Fatalf("exit status %d, stderr: %s", exit, stderr)
	}
	if *update {
		if err := os.WriteFile(golden, []byte(stdout), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if stdout != string(want) {
		t.Fatalf("output is not what %s holds (go test -update writes it):\n%s", golden, stdout)
	}
}

func TestProgram_keeps_a_named_database_and_does_not_touch_it_again(t *testing.T) {
	t.Parallel()

	path := filepath.Join(t.TempDir(), "with blank.db")
	if _, stderr, exit := command(t, "-db", path); exit != 0 {
		t.Fatalf("exit status %d, stderr: %s", exit, stderr)
	}
	db, err := openDatabase(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	left, err := readState(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if want := (state{8, 2, 2}); left != want {
		t.Fatalf("the database holds %s, want %s", left, want)
	}

	stdout, stderr, exit := command(t, "-db", path)
	if exit != 1 || stdout != "" || !strings.Contains(stderr, "exists") {
		t.Fatalf("second run: exit status %d, stdout: %s, stderr: %s", exit, stdout, stderr)
	}
}

// An example that cannot fail shows nothing.
func TestRun_fails_with_a_broken_inbox(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		breakIt func(*inbox.Config)
		want    []string
	}{
		"left out": {
			// Every message goes past the inbox, as if the middleware were not there.
			func(c *inbox.Config) { c.Skip = func(*message.Message) bool { return true } },
			[]string{"delivery 1", "E-42 unprotected, nacked, counter 6"},
		},
		"identity changes with each delivery": {
			func(c *inbox.Config) {
				deliveries := ""
				c.Identity = func(msg *message.Message) (inbox.Identity, error) {
					deliveries += "I"
					return inbox.Identity{ID: msg.UUID + deliveries}, nil
				}
			},
			[]string{"delivery 2", "E-42 processed, acked, counter 8, inbox rows 2, outgoing messages 2"},
		},
		"no outbox": {
			func(c *inbox.Config) { c.Outbox = nil },
			[]string{"delivery 1", "E-42 rolled back, nacked, counter 6", inbox.ErrNoOutbox.Error()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			var out bytes.Buffer
			err := run(&out, "", test.breakIt)
			if err == nil {
				t.Fatalf("no error:\n%s", out.String())
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error does not tell %q: %v", part, err)
				}
			}
		})
	}
}
