// Package webhook tests the inbox behind watermill-http: what the sender of a webhook is answered, and what is committed then.
package webhook

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/postgres"
)

// lab is one service with tables of its own.
type lab struct {
	*testing.T
	*service
	ctx     context.Context
	db      *sql.DB // not the service's
	lock    int64   // an advisory lock, see payloadHeldAtCommit
	url     string
	reports chan inbox.DeliveryReport
}

// What these payloads do is in the database, so that it happens at COMMIT.
const (
	payloadHeldAtCommit    = "held at COMMIT" // while the lab's lock is taken
	payloadRefusedAtCommit = "refused at COMMIT"
)

var labNumber atomic.Int64

func newLab(t *testing.T) *lab {
	t.Helper()
	t.Parallel()
	l := &lab{T: t, lock: time.Now().UnixNano() + labNumber.Add(1), reports: make(chan inbox.DeliveryReport, 100)}
	name := fmt.Sprintf("webhook_%d", l.lock)
	l.service = &service{Effects: name + "_effects", Inbox: name + "_inbox", observer: l}
	l.DSN = inboxtest.Server(t, "INBOX_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable", func(dsn string) error {
		db, err := sql.Open("pgx", dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		return db.Ping()
	})
	var cancel context.CancelFunc
	l.ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	l.makeTables(name)
	return l
}

func (l *lab) makeTables(name string) {
	var err error
	l.db, err = sql.Open("pgx", l.DSN)
	require.NoError(l, err)
	l.Cleanup(func() {
		_, err := l.db.Exec("DROP TABLE IF EXISTS " + l.Effects + ", " + l.Inbox + "; DROP FUNCTION IF EXISTS " + name)
		require.NoError(l, err)
		l.db.Close()
	})
	// No key: the inbox alone must prevent a second row.
	_, err = l.db.Exec(fmt.Sprintf(`
		CREATE TABLE %[1]s_effects (id TEXT NOT NULL, payload TEXT NOT NULL);
		CREATE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.payload = '%[2]s' THEN PERFORM pg_advisory_xact_lock(%[4]d); END IF;
			IF NEW.payload = '%[3]s' THEN RAISE EXCEPTION 'as the test wants'; END IF;
			RETURN NULL;
		END $$;
		CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON %[1]s_effects DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION %[1]s();`,
		name, payloadHeldAtCommit, payloadRefusedAtCommit, l.lock))
	require.NoError(l, err)
	box, err := inbox.New(wsql.BeginnerFromStdSQL(l.db), inbox.Config{Schema: postgres.Schema{MessagesTable: l.Inbox}}, nil)
	require.NoError(l, err)
	require.NoError(l, box.InitializeSchema(l.ctx))
}

// serve starts the service in the test's process.
func (l *lab) serve() {
	l.Helper()
	url, stop, err := l.start()
	require.NoError(l, err)
	l.Cleanup(func() { require.NoError(l, stop()) })
	l.url = url
}

func (l *lab) ObserveDelivery(report inbox.DeliveryReport) { l.reports <- report }

// ended waits for the end of a delivery.
func (l *lab) ended() inbox.DeliveryReport {
	l.Helper()
	return receive(l, l.reports, "the end of a delivery")
}

func receive[T any](l *lab, from <-chan T, what string) (value T) {
	l.Helper()
	select {
	case value = <-from:
	case <-l.ctx.Done():
		l.Fatalf("still waiting for %s", what)
	}
	return value
}

// post sends a webhook. Headers come in pairs.
func (l *lab) post(ctx context.Context, payload string, headers ...string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, strings.NewReader(payload))
	if err != nil {
		return 0, err
	}
	for n := 0; n < len(headers); n += 2 {
		request.Header.Add(headers[n], headers[n+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// send is one attempt of a sender that gets an answer.
func (l *lab) send(id, payload string) (status int) {
	l.Helper()
	status, err := l.post(l.ctx, payload, "webhook-id", id)
	require.NoError(l, err)
	return status
}

// sendTo is for goroutines. Status 0 is no answer.
func (l *lab) sendTo(answers chan<- int, id, payload string) {
	status, _ := l.post(l.ctx, payload, "webhook-id", id)
	answers <- status
}

// sendUntilDelivered repeats as senders do, until it is told 2xx.
func (l *lab) sendUntilDelivered(id, payload string) (answers []int) {
	l.Helper()
	for l.ctx.Err() == nil {
		status := l.send(id, payload)
		answers = append(answers, status)
		if status/100 == 2 {
			return answers
		}
	}
	l.Fatalf("not delivered: %v", answers)
	return nil
}

// requireEffects checks what is durable: these payloads, and an identity of each.
func (l *lab) requireEffects(payloads ...string) {
	l.Helper()
	var got, want struct {
		payloads   string
		identities int
	}
	want.payloads, want.identities = strings.Join(payloads, "|"), len(payloads)
	require.NoError(l, l.db.QueryRowContext(l.ctx, "SELECT (SELECT COALESCE(string_agg(payload, '|' ORDER BY id), '') FROM "+l.Effects+"), (SELECT COUNT(*) FROM "+l.Inbox+")").
		Scan(&got.payloads, &got.identities))
	require.Equal(l, want, got)
}
