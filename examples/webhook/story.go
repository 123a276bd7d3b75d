package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/examples/internal/demo"
)

// run plays the story on a new database and fails if it ends otherwise than it should.
func run(ctx context.Context, w io.Writer, file string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	db, err := openDatabase(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	service, err := newService(db)
	if err != nil {
		return err
	}
	url, stopServer, err := serve(service.endpoint)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer()) }()

	s := &story{w: w, db: db, queue: service.queue, url: url}
	if err := s.receive(ctx); err != nil {
		return err
	}
	stopRouter, err := demo.Start(ctx, service.router)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopRouter()) }()
	if err := s.process(ctx); err != nil {
		return err
	}
	return s.redrive(ctx)
}

// counts are what is durable.
type counts struct{ pending, dead, processed int64 }

// story plays the sender, a forger and the operator.
type story struct {
	w     io.Writer
	db    *sql.DB
	queue *deferred.Store
	url   string
}

// request is one of a sender.
type request struct {
	id, body string
	age      time.Duration
	key      secret
}

func (r request) send(ctx context.Context, url string) (status int, err error) {
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(r.body))
	if err != nil {
		return 0, err
	}
	timestamp := strconv.FormatInt(time.Now().Add(-r.age).Unix(), 10)
	post.Header.Set(idHeader, r.id)
	post.Header.Set(timestampHeader, timestamp)
	post.Header.Set(signatureHeader, r.key.sign(r.id, timestamp, []byte(r.body)))
	response, err := http.DefaultClient.Do(post)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

const (
	toAlice   = `{"to": "alice", "amount": 10}`
	toBob     = `{"to": "bob", "amount": 5}`
	toCarol   = `{"to": "carol", "amount": 7}`
	toMallory = `{"to": "mallory", "amount": 1000}`
)

var (
	key, _  = parseSecret(demoSecret)
	guessed = secret("a guess of twenty-four b")
)

// receive sends requests while nobody processes what they bring.
func (s *story) receive(ctx context.Context) error {
	fmt.Fprintln(s.w, "                                              answer  pending  dead  processed")
	for _, step := range []struct {
		what string
		request
		status int
		want   counts
	}{
		{"msg_1, signed with a guessed secret", request{"msg_1", toMallory, 0, guessed}, 401, counts{}},
		{"msg_1, recorded an hour ago", request{"msg_1", toAlice, time.Hour, key}, 400, counts{}},
		{"msg_1, the true one: 10 for alice", request{"msg_1", toAlice, 0, key}, 202, counts{pending: 1}},
		{"msg_1, the sender repeats it", request{"msg_1", toAlice, 0, key}, 202, counts{pending: 1}},
		{"msg_1, signed, with other content", request{"msg_1", toBob, 0, key}, 422, counts{pending: 1}},
		{"msg_2: 5 for bob", request{"msg_2", toBob, 0, key}, 202, counts{pending: 2}},
		{"msg_3: 7 for carol, who has no account", request{"msg_3", toCarol, 0, key}, 202, counts{pending: 3}},
	} {
		if err := s.send(ctx, step.what, step.request, step.status, step.want); err != nil {
			return err
		}
	}
	return nil
}

// process waits for the worker, which has just started.
func (s *story) process(ctx context.Context) error {
	if err := s.await(ctx, "The worker starts, and is done:", counts{dead: 1, processed: 2}); err != nil {
		return err
	}
	if err := s.send(ctx, "msg_1, the sender repeats it once more", request{"msg_1", toAlice, 0, key}, 200, counts{dead: 1, processed: 2}); err != nil {
		return err
	}
	return s.send(ctx, "msg_3, the sender repeats it", request{"msg_3", toCarol, 0, key}, 202, counts{dead: 1, processed: 2})
}

// redrive is what an operator does: look, remove the cause, let it be tried again under the same identity.
func (s *story) redrive(ctx context.Context) error {
	dead, err := s.queue.List(ctx, deferred.Filter{Consumer: consumer, States: []deferred.State{deferred.StateDead}})
	if err != nil {
		return err
	}
	var numbers []int64
	for _, m := range dead {
		numbers = append(numbers, m.Number)
		fmt.Fprintf(s.w, "\n%s is dead after %d attempts: %s. The last one said: %s.\n", m.Identity.ID, m.Attempts, m.Reason, m.LastError)
	}
	if _, err := s.db.ExecContext(ctx, `INSERT INTO accounts VALUES ('carol', 0)`); err != nil {
		return err
	}
	if err := s.queue.Redrive(ctx, numbers...); err != nil {
		return err
	}
	if err := s.await(ctx, "Carol has an account now, msg_3 is redriven:", counts{processed: 3}); err != nil {
		return err
	}
	return s.conclude(ctx)
}

func (s *story) conclude(ctx context.Context) error {
	var alice, bob, carol int
	err := s.db.QueryRowContext(ctx, `SELECT
		(SELECT balance FROM accounts WHERE owner = 'alice'), (SELECT balance FROM accounts WHERE owner = 'bob'), (SELECT balance FROM accounts WHERE owner = 'carol')`).
		Scan(&alice, &bob, &carol)
	if err != nil {
		return err
	}
	if alice != 10 || bob != 5 || carol != 7 {
		return fmt.Errorf("balances are %d, %d and %d", alice, bob, carol)
	}
	fmt.Fprintf(s.w, "\nAlice has %d, bob %d and carol %d: each payment was booked once, and mallory's never.\n", alice, bob, carol)
	return nil
}

func (s *story) send(ctx context.Context, what string, r request, status int, want counts) error {
	got, err := r.send(ctx, s.url)
	if err != nil {
		return err
	}
	durable, err := count(ctx, s.db, s.queue)
	if err != nil {
		return err
	}
	s.print(what, strconv.Itoa(got), durable)
	if got != status || durable != want {
		return fmt.Errorf("%s: answer %d and %+v, want %d and %+v", what, got, durable, status, want)
	}
	return nil
}

// await waits until the counts are as they should be. An operator would look at them, too.
func (s *story) await(ctx context.Context, what string, want counts) error {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		durable, err := count(ctx, s.db, s.queue)
		if err != nil {
			return err
		}
		if durable == want {
			s.print(what, "", durable)
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%s %+v, want %+v: %w", what, durable, want, ctx.Err())
		}
	}
}

func (s *story) print(what, status string, c counts) {
	fmt.Fprintf(s.w, "%-45s %6s  %7d  %4d  %9d\n", what, status, c.pending, c.dead, c.processed)
}

// count asks the queue and the table of identities. A processed message is in the second only.
func count(ctx context.Context, db *sql.DB, queue *deferred.Store) (c counts, err error) {
	found, err := queue.Count(ctx)
	if err != nil {
		return c, err
	}
	for _, f := range found {
		if f.Consumer == consumer {
			c.pending += f.Pending + f.Suspect + f.Claimed + f.Waiting
			c.dead += f.Dead
		}
	}
	err = db.QueryRowContext(ctx, `SELECT COUNT(*) FROM inbox_messages WHERE consumer = CAST(? AS BLOB)`, consumer).Scan(&c.processed)
	return c, err
}
