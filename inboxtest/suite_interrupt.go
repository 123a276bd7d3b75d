package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

var interruptCases = []testCase{
	{name: "T02_ContextEndsInTheHandler", run: contextEndsInTheHandler},
	{name: "T02_TxTimeoutEndsInTheHandler", run: txTimeoutEndsInTheHandler},
	{name: "T03_InterruptedWriteIsSwallowed", run: interruptedWriteIsSwallowed},
	{name: "T03_InterruptedWriteIsSwallowedWithOutgoing", run: interruptedWriteIsSwallowedWithOutgoing},
}

const interruptedMessages = 500

// threeInserts writes three rows with statements that are prepared where the driver can.
func (f *fixture) threeInserts(msg *message.Message) ([]*message.Message, error) {
	ctx := msg.Context()
	tx, std := inbox.StdTxFromContext(ctx)
	if !std {
		for step := range 3 {
			if err := f.write(ctx, msg.UUID, step); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	statement, err := tx.PrepareContext(ctx, f.insertBiz())
	if err != nil {
		return nil, err
	}
	defer func() { _ = statement.Close() }()
	for step := range 3 {
		if _, err := statement.ExecContext(ctx, msg.UUID, step); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func contextEndsInTheHandler(t *testing.T, f *fixture) {
	pool := f.pool(t, 4)
	f.interrupt(t, func(msg *message.Message, after time.Duration) delivery {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		msg.SetContext(ctx)
		return f.consumerOn(t, pool, inbox.Config{}, func(msg *message.Message) ([]*message.Message, error) {
			defer time.AfterFunc(after, cancel).Stop()
			return f.threeInserts(msg)
		}).deliver(msg)
	})
}

func txTimeoutEndsInTheHandler(t *testing.T, f *fixture) {
	pool := f.pool(t, 4)
	f.interrupt(t, func(msg *message.Message, after time.Duration) delivery {
		// The time runs from BEGIN, so a connection must be there already: the one before was closed by its timeout.
		if _, err := pool.DB.ExecContext(context.Background(), "SELECT 1"); err != nil {
			t.Fatal(err)
		}
		box := f.newInbox(t, pool, inbox.Config{TxTimeout: after + time.Microsecond, ConflictRetries: -1})
		return deliver(box.Middleware(f.threeInserts), msg)
	})
}

// interrupt delivers many messages that end at a random moment, and checks that each left all of its rows or none.
func (f *fixture) interrupt(t *testing.T, deliver func(msg *message.Message, after time.Duration) delivery) {
	t.Helper()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))

	// An undisturbed delivery tells how long one takes here, so that about half of the others are in time.
	wantAck(t, deliver(newMessage("first"), patience))
	start := time.Now()
	deliveries := map[string]delivery{"first": {acked: true}, "second": deliver(newMessage("second"), patience)}
	longest := max(2*time.Since(start), 3*time.Millisecond)
	for n := range interruptedMessages {
		id := fmt.Sprintf("m%d", n)
		deliveries[id] = deliver(newMessage(id), time.Duration(random.Int64N(int64(longest))))
	}
	// A server notices a closed connection a moment later.
	f.waitForNoTransaction(t, "the interrupted transactions to end")

	written, stored := f.strings(t, "SELECT who FROM biz"), f.strings(t, "SELECT message_id FROM "+inbox.DefaultMessagesTable)
	acks := 0
	for id, d := range deliveries {
		if d.acked {
			acks++
		}
		want := 0
		if stored[id] == 1 {
			want = 3
		}
		if written[id] != want || d.acked != (stored[id] == 1) {
			t.Fatalf("seed %d: message %s has %d rows written, %d identities; %v", seed, id, written[id], stored[id], d)
		}
	}
	t.Logf("seed %d: %d of %d messages were in time", seed, acks, interruptedMessages)
}

// strings counts how often a query returns each value.
func (f *fixture) strings(t *testing.T, query string) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tx, err := f.instance.Admin.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	result, err := tx.QueryContext(ctx, query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = result.Close() }()

	counts := map[string]int{}
	for result.Next() {
		var value []byte
		if err := result.Scan(&value); err != nil {
			t.Fatal(err)
		}
		counts[string(value)]++
	}
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	return counts
}

func interruptedWriteIsSwallowed(t *testing.T, f *fixture) { f.swallowInterrupt(t, false) }

func interruptedWriteIsSwallowedWithOutgoing(t *testing.T, f *fixture) { f.swallowInterrupt(t, true) }

// swallowInterrupt runs a handler that ignores that its write was interrupted, and goes on. SQLite has ended the transaction by then, and commits
// what follows; the servers have lost the connection or refuse everything.
func (f *fixture) swallowInterrupt(t *testing.T, outgoingMessage bool) {
	t.Helper()
	if f.features().SlowInsert == "" {
		t.Skip("the engine has no slow statement")
	}
	after := 30 * time.Millisecond
	r := newRouterWithOutbox(t, f, func(msg *message.Message) ([]*message.Message, error) {
		ctx, cancel := context.WithTimeout(msg.Context(), after)
		defer cancel()
		if err := f.execInTx(ctx, f.features().SlowInsert); err == nil {
			t.Error("the slow statement was not interrupted")
		}
		_ = f.write(msg.Context(), msg.UUID, 1)
		if outgoingMessage {
			return []*message.Message{newMessage("out")}, nil
		}
		return nil, nil
	})

	// On a busy machine the time can end before the statement has begun. That ends no transaction, so the delivery is right to succeed.
	var want rows
	d := r.deliver(t, "incoming", newMessage("m0"))
	for n := 1; d.acked && n < 5; n++ {
		if want.inbox++; outgoingMessage {
			want.outbox++
		}
		f.wantStoredAndSent(t, want)
		if err := receive(t, r.errors, "the end of the delivery"); err != nil {
			t.Fatal(err)
		}
		after *= 3
		d = r.deliver(t, "incoming", newMessage(fmt.Sprintf("m%d", n)))
	}

	wantNack(t, d)
	if err := receive(t, r.errors, "the error of the delivery"); inbox.IsPoison(err) || !f.features().ConcurrentWriters && !errors.Is(err, inbox.ErrTransactionLost) {
		t.Fatalf("want a transient error, ErrTransactionLost on an engine in this process; got %v", err)
	}
	f.waitForNoTransaction(t, "the interrupted transaction to end")
	f.wantStoredAndSent(t, want)
}

// wantStoredAndSent is want without the rows of handlers.
func (f *fixture) wantStoredAndSent(t *testing.T, want rows) {
	t.Helper()
	if got := (rows{inbox: f.identities(t), outbox: f.outbox(t)}); got != want {
		t.Fatalf("rows in the tables: %+v, want %+v", got, want)
	}
}

// routerWithOutbox is a Router with one handler, from topic incoming to topic outgoing, behind an inbox.
type routerWithOutbox struct {
	*router
	inbox  *inbox.Inbox
	errors chan error // of each delivery, as the inbox returned it
}

func newRouterWithOutbox(t *testing.T, f *fixture, handler message.HandlerFunc) *routerWithOutbox {
	t.Helper()
	r := &routerWithOutbox{
		router: newRouter(t, message.RouterConfig{}),
		inbox:  f.newInbox(t, f.pool(t, 4), inbox.Config{ResolveTimeout: 5 * time.Second}),
		errors: make(chan error, 100),
	}
	h := r.AddHandler("handler", "incoming", r.broker, outgoing, r.inbox.Publisher(), handler)
	h.AddMiddleware(func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			produced, err := next(msg)
			r.errors <- err
			return produced, err
		}
	}, r.inbox.Middleware)
	r.start(t)
	return r
}
