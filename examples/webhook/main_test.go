package main

import (
	"bytes"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/watermill-inbox/inbox/examples/internal/demo"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
)

var update = flag.Bool("update", false, "write what the program prints to testdata")

const golden = "testdata/output.txt"

// durable is what a connection of its own finds.
type durable struct {
	pending, dead, identities int
	alice, bob                int
}

func find(t *testing.T, file string) (d durable) {
	t.Helper()
	db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	err = db.QueryRow(`SELECT
		(SELECT COUNT(*) FROM inbox_pending WHERE state <> 4), (SELECT COUNT(*) FROM inbox_pending WHERE state = 4), (SELECT COUNT(*) FROM inbox_messages),
		(SELECT balance FROM accounts WHERE owner = 'alice'), (SELECT balance FROM accounts WHERE owner = 'bob')`).
		Scan(&d.pending, &d.dead, &d.identities, &d.alice, &d.bob)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestProgram_prints_what_happens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "payments.db")
	var out bytes.Buffer
	if err := run(context.Background(), &out, file); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if got, want := find(t, file), (durable{identities: 3, alice: 10, bob: 5}); got != want {
		t.Errorf("durable is %+v, want %+v", got, want)
	}
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Fatalf("output is not what %s holds (go test -update writes it):\n%s", golden, out.String())
	}
}

// lab is a service whose router does not run yet.
type lab struct {
	*service
	db   *sql.DB
	file string
	url  string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{file: filepath.Join(t.TempDir(), "payments.db")}
	var err error
	if l.db, err = openDatabase(l.file); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.db.Close() })
	if l.service, err = newService(l.db); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(l.endpoint)
	t.Cleanup(server.Close)
	l.url = server.URL
	return l
}

func (l *lab) send(t *testing.T, r request) int {
	t.Helper()
	status, err := r.send(context.Background(), l.url)
	if err != nil {
		t.Error(err)
	}
	return status
}

// process runs the router until as many messages are processed.
func (l *lab) process(t *testing.T, processed int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	stop, err := demo.Start(ctx, l.router)
	if err != nil {
		t.Fatal(err)
	}
	s := &story{w: &bytes.Buffer{}, db: l.db, queue: l.queue}
	if err := s.await(ctx, "processing", counts{processed: processed}); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func (l *lab) expect(t *testing.T, want durable) {
	t.Helper()
	if got := find(t, l.file); got != want {
		t.Fatalf("durable is %+v, want %+v", got, want)
	}
}

func TestForgedRequest_cannot_take_an_id(t *testing.T) {
	t.Parallel()

	now := time.Now().Unix()
	signed := func(id string, at int64, body string) http.Header {
		header := http.Header{}
		header.Set(idHeader, id)
		header.Set(timestampHeader, fmt.Sprint(at))
		header.Set(signatureHeader, key.sign(id, fmt.Sprint(at), []byte(body)))
		return header
	}
	with := func(header http.Header, name string, values ...string) http.Header {
		header[name] = values
		return header
	}
	true1 := signed("msg_1", now, toAlice)
	for name, forged := range map[string]struct {
		header http.Header
		body   string
		status int
	}{
		"a guessed secret":        {with(signed("msg_1", now, toMallory), signatureHeader, guessed.sign("msg_1", fmt.Sprint(now), []byte(toMallory))), toMallory, 401},
		"another body":            {signed("msg_1", now, toAlice), toMallory, 401},
		"another event's":         {with(signed("msg_2", now, toAlice), idHeader, "msg_1"), toAlice, 401},
		"a later timestamp":       {with(signed("msg_1", now-3600, toAlice), timestampHeader, fmt.Sprint(now)), toAlice, 401},
		"an hour old":             {signed("msg_1", now-3600, toAlice), toAlice, 400},
		"beyond the tolerance":    {signed("msg_1", now-301, toAlice), toAlice, 400},
		"from the future":         {signed("msg_1", now+3600, toAlice), toAlice, 400},
		"no signature":            {with(signed("msg_1", now, toAlice), signatureHeader), toAlice, 400},
		"an empty signature":      {with(signed("msg_1", now, toAlice), signatureHeader, ""), toAlice, 401},
		"not base64":              {with(signed("msg_1", now, toAlice), signatureHeader, "v1,%"), toAlice, 401},
		"a signature's beginning": {with(signed("msg_1", now, toAlice), signatureHeader, true1.Get(signatureHeader)[:23]), toAlice, 401},
		"of another kind":         {with(signed("msg_1", now, toAlice), signatureHeader, strings.Replace(true1.Get(signatureHeader), "v1,", "v2,", 1)), toAlice, 401},
		"no id":                   {with(signed("msg_1", now, toAlice), idHeader), toAlice, 400},
		"two ids":                 {with(signed("msg_1", now, toAlice), idHeader, "msg_1", "msg_2"), toAlice, 400},
		"no timestamp":            {with(signed("msg_1", now, toAlice), timestampHeader), toAlice, 400},
		"no number":               {with(signed("msg_1", now, toAlice), timestampHeader, "yesterday"), toAlice, 400},
		"an id with a dot":        {signed("msg_1.7", now, toAlice), toAlice, 400},
		"a body over the limit":   {signed("msg_1", now, strings.Repeat("x", 64<<10+1)), strings.Repeat("x", 64<<10+1), 413},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l := newLab(t)
			post, err := http.NewRequest(http.MethodPost, l.url, strings.NewReader(forged.body))
			if err != nil {
				t.Fatal(err)
			}
			post.Header = forged.header
			response, err := http.DefaultClient.Do(post)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != forged.status {
				t.Errorf("answer %d, want %d", response.StatusCode, forged.status)
			}
			l.expect(t, durable{})

			if status := l.send(t, request{"msg_1", toAlice, 0, key}); status != http.StatusAccepted {
				t.Errorf("the true request is answered %d", status)
			}
			l.expect(t, durable{pending: 1})
			l.process(t, 1)
			l.expect(t, durable{identities: 1, alice: 10})
		})
	}
}

func TestRepeatedRequests_are_stored_and_booked_once(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	var senders sync.WaitGroup
	for n := range 10 {
		senders.Add(1)
		go func() {
			defer senders.Done()
			again := request{"msg_1", toAlice, time.Duration(n) * time.Second, key} // with a timestamp and signature of its own
			if status := l.send(t, again); status != http.StatusAccepted {
				t.Errorf("answer %d", status)
			}
		}()
	}
	senders.Wait()
	l.expect(t, durable{pending: 1})
	l.process(t, 1)

	if status := l.send(t, request{"msg_1", toAlice, 0, key}); status != http.StatusOK {
		t.Errorf("answer to a repetition of what is processed: %d", status)
	}
	l.expect(t, durable{identities: 1, alice: 10})
}

func TestOtherContent_is_refused_and_changes_nothing(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	other := request{"msg_1", toBob, 0, key}
	l.send(t, request{"msg_1", toAlice, 0, key})
	if status := l.send(t, other); status != http.StatusUnprocessableEntity {
		t.Errorf("answer while the first is pending: %d", status)
	}
	l.expect(t, durable{pending: 1})
	l.process(t, 1)

	if status := l.send(t, other); status != http.StatusUnprocessableEntity {
		t.Errorf("answer after the first is processed: %d", status)
	}
	l.expect(t, durable{identities: 1, alice: 10})
}

// The endpoint must not answer 2xx for what it could not store.
func TestWithoutTable_no_request_is_accepted(t *testing.T) {
	t.Parallel()

	l := newLab(t)
	rename := func(from, to string) {
		if _, err := l.db.Exec("ALTER TABLE " + from + " RENAME TO " + to); err != nil {
			t.Fatal(err)
		}
	}
	rename("inbox_pending", "gone")
	if status := l.send(t, request{"msg_1", toAlice, 0, key}); status != http.StatusServiceUnavailable {
		t.Errorf("answer without the table: %d", status)
	}
	rename("gone", "inbox_pending")
	l.expect(t, durable{})
	if status := l.send(t, request{"msg_1", toAlice, 0, key}); status != http.StatusAccepted {
		t.Errorf("answer with the table: %d", status)
	}
	l.expect(t, durable{pending: 1})
}

// What the sender computes: the values are those of the tests of Standard Webhooks.
func TestSign(t *testing.T) {
	t.Parallel()

	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)); got != want {
		t.Fatalf("signature %s, want %s", got, want)
	}
}

func TestVerify_takes_one_valid_signature_of_several(t *testing.T) {
	t.Parallel()

	at := time.Unix(1614265330, 0)
	header := http.Header{}
	header.Set(idHeader, "msg_1")
	header.Set(timestampHeader, "1614265330")
	header.Set(signatureHeader, "v1a,x v1,% "+guessed.sign("msg_1", "1614265330", nil)+" "+key.sign("msg_1", "1614265330", nil))
	for _, now := range []time.Time{at, at.Add(tolerance), at.Add(-tolerance)} {
		if err := key.verify(header, nil, now); err != nil {
			t.Error(now.Sub(at), err)
		}
	}
}
