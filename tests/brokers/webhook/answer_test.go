package webhook

import (
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

func TestAnswer_comes_after_COMMIT(t *testing.T) {
	l := newLab(t)
	l.serve()
	holder, err := l.db.BeginTx(l.ctx, nil)
	require.NoError(t, err)
	defer func() { _ = holder.Rollback() }()
	_, err = holder.Exec("SELECT pg_advisory_xact_lock($1)", l.lock)
	require.NoError(t, err)

	answer := make(chan int, 1)
	go l.sendTo(answer, "1", payloadHeldAtCommit)
	l.awaitWaiter()
	select {
	case status := <-answer:
		t.Fatalf("answered %d before COMMIT", status)
	case <-time.After(100 * time.Millisecond):
	}
	l.requireEffects()
	require.NoError(t, holder.Rollback())

	require.Equal(t, http.StatusOK, receive(l, answer, "the answer"))
	l.requireEffects(payloadHeldAtCommit)
}

// awaitWaiter returns when a COMMIT waits for the lock.
func (l *lab) awaitWaiter() {
	l.Helper()
	for waiting := 0; waiting == 0; time.Sleep(5 * time.Millisecond) {
		require.NoError(l, l.db.QueryRowContext(l.ctx,
			"SELECT COUNT(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND (classid::bigint << 32) + objid::bigint = $1", l.lock).Scan(&waiting))
	}
}

func TestRepetition_is_answered_like_the_first(t *testing.T) {
	l := newLab(t)
	l.serve()
	for range 3 {
		require.Equal(t, http.StatusOK, l.send("1", "payload"))
		l.requireEffects("payload")
	}
	require.EqualValues(t, 1, l.runs.Load())
}

func TestRepetitions_at_the_same_time(t *testing.T) {
	l := newLab(t)
	l.serve()
	const senders = 10
	answers := make(chan int, senders)
	for range senders {
		go l.sendTo(answers, "1", "payload")
	}
	for range senders {
		require.Equal(t, http.StatusOK, receive(l, answers, "the answers"))
	}
	require.EqualValues(t, 1, l.runs.Load())
	l.requireEffects("payload")
}

func TestHandler_that_fails(t *testing.T) {
	for name, failure := range map[string]func(){"with an error": func() {}, "with a panic": func() { panic("broken") }} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.does = func(*message.Message, *sql.Tx) error {
				if l.runs.Load() > 2 {
					return nil
				}
				failure()
				return errors.New("broken")
			}
			l.serve()
			require.Equal(t, []int{500, 500, 200}, l.sendUntilDelivered("1", "payload"))
			l.requireEffects("payload")
		})
	}
}

func TestRequest_that_cannot_be_processed(t *testing.T) {
	for name, test := range map[string]struct {
		payload  string
		headers  []string
		noAnswer bool
		want     int
	}{
		"without an id":                    {"payload", nil, false, 400},
		"without an id and Answer":         {"payload", nil, true, 500},
		"with a blank id":                  {"payload", []string{"Webhook-Id", ""}, false, 400},
		"with an id that is too long":      {"payload", []string{"Webhook-Id", strings.Repeat("x", inbox.MaxIDLength+1)}, false, 400},
		"with two ids":                     {"payload", []string{"Webhook-Id", "1", "webhook-id", "2"}, false, 400},
		"with a body over the limit":       {strings.Repeat("x", maxBody+1), []string{"Webhook-Id", "1"}, false, 400},
		"that is refused at COMMIT":        {payloadRefusedAtCommit, []string{"Webhook-Id", "1"}, false, 500},
		"with a body of exactly this size": {strings.Repeat("x", maxBody), []string{"Webhook-Id", "1"}, false, 200},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.noAnswer = test.noAnswer
			l.serve()
			status, err := l.post(l.ctx, test.payload, test.headers...)
			require.NoError(t, err)
			require.Equal(t, test.want, status)
			if test.want == 200 {
				l.requireEffects(test.payload)
			} else {
				l.requireEffects()
			}
		})
	}
}

func TestSame_id_with_another_body(t *testing.T) {
	l := newLab(t)
	l.serve()
	require.Equal(t, http.StatusOK, l.send("1", "payload"))
	require.Equal(t, http.StatusUnprocessableEntity, l.send("1", "other"))
	require.Equal(t, inbox.Processed, l.ended().Outcome)
	var mismatch *inbox.MismatchError
	require.ErrorAs(t, l.ended().Err, &mismatch)
	require.Equal(t, http.StatusOK, l.send("1", "payload"))
	require.EqualValues(t, 1, l.runs.Load())
	l.requireEffects("payload")
}

// The status code is a value that the handler puts into the message's context.
func TestHandler_that_sets_the_status_code(t *testing.T) {
	for name, test := range map[string]struct {
		code    int
		err     error
		payload string
		answers []int
		effects []string

		noAnswer bool
	}{
		"of a success":                    {202, nil, "payload", []int{202, 200}, []string{"payload"}, false},
		"of a failure":                    {503, errors.New("broken"), "payload", []int{503, 503}, nil, false},
		"of a success that is no success": {202, errors.New("broken"), "payload", []int{500, 500}, nil, false},
		"before a COMMIT that fails":      {202, nil, payloadRefusedAtCommit, []int{500, 500}, nil, false},
		"the same without Answer":         {202, nil, payloadRefusedAtCommit, []int{500, 500}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			l.noAnswer = test.noAnswer
			l.does = func(msg *message.Message, _ *sql.Tx) error {
				wmhttp.SetResponseStatusCode(msg, test.code)
				return test.err
			}
			l.serve()
			require.Equal(t, test.answers, []int{l.send("1", test.payload), l.send("1", test.payload)})
			l.requireEffects(test.effects...)
		})
	}
}
