package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// binary is inboxctl as the tests run it.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "inboxctl")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "inboxctl")
	build := exec.Command("go", append(append([]string{"build"}, raceFlags...), "-o", binary, ".")...)
	if output, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build inboxctl: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

// result is how a run of the binary ended.
type result struct {
	code           int
	stdout, stderr string
}

// inboxctl runs the binary without a terminal, with nothing in its environment but these variables.
func inboxctl(t *testing.T, env []string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		t.Fatal(err)
	}
	r := result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	require.NotContains(t, r.stdout+r.stderr, "\x1b", "there is no terminal")
	require.NotContains(t, r.stdout+r.stderr, "DATA RACE")
	return r
}

// succeeds wants the exit code 0 and returns what was printed.
func (r result) succeeds(t *testing.T) string {
	t.Helper()
	require.Equal(t, 0, r.code, "stdout: %s\nstderr: %s", r.stdout, r.stderr)
	return r.stdout
}

// fails wants an exit code and exactly one line of error, which it returns.
func (r result) fails(t *testing.T, code int) string {
	t.Helper()
	require.Equal(t, code, r.code, "stdout: %s\nstderr: %s", r.stdout, r.stderr)
	require.Regexp(t, `^inboxctl: [^\n]+\n$`, r.stderr)
	return strings.TrimSpace(r.stderr)
}

// golden compares a text with a file of testdata. With INBOX_TEST_GOLDEN=write it writes the file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if os.Getenv("INBOX_TEST_GOLDEN") == "write" {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "INBOX_TEST_GOLDEN=write writes %s anew", path)
}
