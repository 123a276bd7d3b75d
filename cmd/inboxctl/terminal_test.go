package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// terminal is a real one: a tmux server of its own, in whose only pane the binary runs.
type terminal struct {
	socket string
	raw    string // file with all that was written to it, escape sequences included
}

// inTerminal starts the binary. NO_COLOR and the like go into env.
func inTerminal(t *testing.T, env []string, args ...string) terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		complain := t.Skipf
		if os.Getenv("INBOX_TEST_ALL") == "1" {
			complain = t.Fatalf
		}
		complain("#####  NOT TESTED in a terminal: %v  #####", err)
	}
	dir := t.TempDir()
	var script strings.Builder
	script.WriteString("trap : INT\nread go\n")
	for _, setting := range env {
		script.WriteString("export " + shellQuote(setting) + "\n")
	}
	script.WriteString(shellQuote(binary))
	for _, arg := range args {
		script.WriteString(" " + shellQuote(arg))
	}
	script.WriteString("\necho exit=$?\nexec cat\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script"), []byte(script.String()), 0o600))

	term := terminal{filepath.Join(dir, "tmux"), filepath.Join(dir, "raw")}
	term.tmux(t, "-f", "/dev/null", "new-session", "-d", "-x", "180", "-y", "50", "sh "+shellQuote(filepath.Join(dir, "script")))
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", term.socket, "kill-server").Run() })
	term.tmux(t, "pipe-pane", "cat >> "+shellQuote(term.raw))
	term.keys(t, "Enter")
	return term
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (term terminal) tmux(t *testing.T, args ...string) string {
	t.Helper()
	output, err := exec.Command("tmux", append([]string{"-S", term.socket}, args...)...).CombinedOutput()
	require.NoError(t, err, string(output))
	return string(output)
}

func (term terminal) keys(t *testing.T, keys ...string) {
	t.Helper()
	term.tmux(t, append([]string{"send-keys"}, keys...)...)
}

// await returns the screen as soon as it shows a text.
func (term terminal) await(t *testing.T, text string) string {
	t.Helper()
	var screen string
	require.Eventually(t, func() bool {
		screen = term.tmux(t, "capture-pane", "-p", "-S", "-")
		return strings.Contains(screen, text)
	}, 30*time.Second, 20*time.Millisecond, "the screen never shows %q", text)
	return screen
}

// ends waits for the end of the binary, and returns the screen and the raw bytes.
func (term terminal) ends(t *testing.T, code int) (screen, raw string) {
	t.Helper()
	screen = term.await(t, "exit=")
	require.Contains(t, screen, fmt.Sprintf("exit=%d\n", code), screen)
	var bytes []byte
	require.Eventually(t, func() (done bool) { // tmux writes it in its own time
		bytes, _ = os.ReadFile(term.raw)
		return strings.Contains(string(bytes), "exit=")
	}, 10*time.Second, 20*time.Millisecond)
	return screen, string(bytes)
}

func TestTerminal_prompt(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.receive(t, stock, messages(7)...)
		db.exec(t, "UPDATE inbox_pending SET state = 4, reason = 'attempts exhausted'")
		env := []string{"INBOX_DSN=" + db.dsn}
		const question = "Type yes to discard 7 messages:"

		for _, answer := range [][]string{{"no", "Enter"}, {"y", "Enter"}, {"YES", "Enter"}, {"Enter"}, {"C-d"}, {"C-c"}} {
			term := inTerminal(t, env, "discard", "--consumer", stock, "--all")
			screen := term.await(t, question)
			require.Contains(t, screen, "7 dead messages in the pending queue will be discarded:")
			require.Contains(t, screen, "evt-5")
			require.NotContains(t, screen, "evt-6")
			require.Contains(t, screen, "... and 2 more")
			term.keys(t, answer...)
			screen, _ = term.ends(t, 5)
			require.Contains(t, screen, "inboxctl: not confirmed, nothing was changed", answer)
			require.Equal(t, 7, db.count(t, "inbox_pending WHERE state = 4"), answer)
		}

		term := inTerminal(t, env, "discard", "--consumer", stock, "--all")
		term.await(t, question)
		term.keys(t, "yes", "Enter")
		screen, _ := term.ends(t, 0)
		require.Contains(t, screen, "7 messages discarded.")
		require.Zero(t, db.count(t, "inbox_pending"))
	})
}

func TestTerminal_progress(t *testing.T) {
	t.Parallel()
	eachDatabase(t, func(t *testing.T, db testDatabase) {
		db.receive(t, stock, messages(3*pageSize)...)
		db.exec(t, "UPDATE inbox_pending SET state = 4")
		screen, raw := inTerminal(t, []string{"INBOX_DSN=" + db.dsn}, "redrive", "--yes", "--consumer", stock, "--all").ends(t, 0)
		require.Contains(t, screen, "100%")
		require.Contains(t, screen, "(1500/1500)")
		require.Contains(t, screen, "1500 messages redriven.\n")
		for _, step := range []string{"(0/1500)", "(500/1500)", "(1000/1500)"} {
			require.Contains(t, raw, step)
		}
		require.Equal(t, 3*pageSize, db.count(t, "inbox_pending WHERE state = 0"))
	})
}

// Colours are for terminals, unless the user wants none.
func TestTerminal_colours(t *testing.T) {
	t.Parallel()
	db := databases["sqlite"](t)
	db.receive(t, stock, messages(1)...)
	db.exec(t, "UPDATE inbox_pending SET state = 4")
	env := []string{"INBOX_DSN=" + db.dsn}

	_, raw := inTerminal(t, env, "list").ends(t, 0)
	require.Contains(t, raw, bold+"NUMBER")
	require.Contains(t, raw, red+"1 ")
	for _, none := range []string{"NO_COLOR=1", "TERM=dumb"} {
		_, raw := inTerminal(t, append(env, none), "list").ends(t, 0)
		require.NotContains(t, raw, "\x1b[", none)
	}
	_, raw = inTerminal(t, env, "list", "-o", "json").ends(t, 0)
	require.NotContains(t, raw, bold)
}
