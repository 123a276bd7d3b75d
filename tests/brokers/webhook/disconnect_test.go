package webhook

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// A client that is gone learns nothing. Its next attempt finds out what became of the first.
func TestClient_disconnects_while_the_handler_runs(t *testing.T) {
	for name, test := range map[string]struct {
		context inbox.HandlerContext
		ignores bool // the handler: that its context ended
		want    inbox.Outcome
		runs    int32
	}{
		"Cancellable, and the handler returns the error": {inbox.Cancellable, false, 0, 2},
		"Cancellable, and the handler ignores it":        {inbox.Cancellable, true, inbox.Processed, 1},
		"Detached": {inbox.Detached, false, inbox.Processed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.handlerContext = test.context
			gone := make(chan (<-chan struct{}), 10) // for each message, when its client is
			l.received = func(msg *message.Message) { gone <- msg.Context().Done() }
			clientCtx, disconnect := context.WithCancel(l.ctx)
			l.does = func(msg *message.Message, tx *sql.Tx) error {
				if l.runs.Load() > 1 {
					return nil
				}
				disconnect()
				receive(l, receive(l, gone, "the message"), "the end of its context")
				if test.ignores {
					return nil
				}
				_, err := tx.ExecContext(msg.Context(), "SELECT 1")
				return err
			}
			l.serve()

			_, err := l.post(clientCtx, "payload", "Webhook-Id", "1")
			require.ErrorIs(t, err, context.Canceled)
			report := l.ended()
			require.Equal(t, test.want, report.Outcome)
			if test.want == 0 {
				require.ErrorIs(t, report.Err, context.Canceled)
				l.requireEffects()
			} else {
				l.requireEffects("payload")
			}

			require.Equal(t, []int{200}, l.sendUntilDelivered("1", "payload"))
			require.Equal(t, test.runs, l.runs.Load())
			l.requireEffects("payload")
		})
	}
}

const childVariable = "INBOX_TEST_WEBHOOK_CHILD"

// TestMain makes the test binary a service in a process of its own, which stops for ever between COMMIT and answer.
func TestMain(m *testing.M) {
	encoded := os.Getenv(childVariable)
	if encoded == "" {
		os.Exit(m.Run())
	}
	if err := runChild(encoded); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

func runChild(encoded string) error {
	s := &service{}
	if err := json.Unmarshal([]byte(encoded), s); err != nil {
		return err
	}
	s.committed = func(*message.Message) {
		fmt.Println("committed")
		select {}
	}
	url, _, err := s.start()
	if err != nil {
		return err
	}
	fmt.Println(url)
	_, err = io.Copy(io.Discard, os.Stdin) // so that it does not outlive the test
	return err
}

func TestServer_is_killed_between_COMMIT_and_answer(t *testing.T) {
	l := newLab(t)
	encoded, err := json.Marshal(l.service)
	require.NoError(t, err)
	child := exec.Command(os.Args[0]) //nolint:gosec // this very binary
	child.Env = append(os.Environ(), childVariable+"="+string(encoded))
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer func() { _ = child.Wait() }()
	defer func() { _ = child.Process.Kill() }()
	lines := make(chan string)
	go func() {
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()

	l.url = receive(l, lines, "the child to start")
	failed := make(chan error, 1)
	go func() {
		_, err := l.post(l.ctx, "payload", "Webhook-Id", "1")
		failed <- err
	}()
	require.Equal(t, "committed", receive(l, lines, "the commit"))
	require.NoError(t, child.Process.Kill())
	require.Error(t, receive(l, failed, "the end of the request"))
	l.requireEffects("payload")

	l.serve() // the next process, as far as the client can tell
	require.Equal(t, http.StatusOK, l.send("1", "payload"))
	require.Equal(t, inbox.Duplicate, l.ended().Outcome)
	require.Zero(t, l.runs.Load())
	l.requireEffects("payload")
}
