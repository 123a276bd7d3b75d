package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

// orders is the topic of the suite's deferred messages.
const orders = "orders"

// deferredCases are all tests of the deferred mode.
var deferredCases = [][]testCase{
	receiveCases,
	subscribeCases,
	leaseCases,
	eventCases,
	fenceCases,
	sweepCases,
	clockCases,
	closeCases,
	keyCases,
	redriveCases,
	storeCases,
	stripCases,
	relayCases,
	relayFailureCases,
}

// TestDeferred runs the suite of the deferred mode as subtests, several at once.
func TestDeferred(t *testing.T, database Database) {
	runCases(t, database, slices.Concat(deferredCases...))
}

// node is one process of a service with a deferred inbox: a Receiver, and a Router with a Subscriber and an Inbox.
type node struct {
	*fixture
	pool       Pool
	box        *inbox.Inbox // nil: withoutBox
	receiver   *deferred.Receiver
	subscriber *deferred.Subscriber
	handler    message.NoPublishHandlerFunc

	mu    sync.Mutex
	calls map[string]int // handler runs of each message
}

// nodeOptions are the parts of a node. What is not set is a default that suits tests.
type nodeOptions struct {
	receiver    deferred.ReceiverConfig
	subscriber  deferred.SubscriberConfig
	inbox       inbox.Config
	outside     []message.HandlerMiddleware // of the inbox
	withoutBox  bool
	connections int
	faults      *faultyDB                           // nil: none
	clock       func(inbox.Schema) deferred.Dialect // nil: the database's
}

// newNode makes a node whose handler writes a row into biz, and does what handler does. It does not start it.
func (f *fixture) newNode(t *testing.T, options nodeOptions, handler func(msg *message.Message) error) *node {
	t.Helper()
	if options.connections == 0 {
		options.connections = 8
	}
	n := &node{fixture: f, pool: f.pool(t, options.connections), calls: map[string]int{}}
	if options.faults != nil {
		n.pool = faulty(n.pool, options.faults)
	}

	rc, sc := &options.receiver, &options.subscriber
	rc.Schema, sc.Schema = f.database.Schema(""), f.database.Schema("")
	if options.clock != nil {
		rc.Schema, sc.Schema = options.clock(rc.Schema), options.clock(sc.Schema)
	}
	rc.Consumer, sc.Consumer = "billing", "billing"
	rc.AutoInitializeSchema, sc.AutoInitializeSchema = true, true
	if rc.Wakeup == nil && sc.Wakeup == nil {
		rc.Wakeup = &deferred.Wakeup{}
		sc.Wakeup = rc.Wakeup
	}
	setDefault(&sc.Lease, 30*time.Second)
	setDefault(&sc.InitialBackoff, 10*time.Millisecond)
	setDefault(&sc.MaxBackoff, 50*time.Millisecond)
	setDefault(&sc.PollInterval, 50*time.Millisecond)
	var err error
	if n.receiver, err = deferred.NewReceiver(n.pool.DB, *rc, nil); err != nil {
		t.Fatal(err)
	}
	if n.subscriber, err = deferred.NewSubscriber(n.pool.DB, *sc, nil); err != nil {
		t.Fatal(err)
	}
	// A test that does not start the node must nevertheless give back the connection of a subscription.
	t.Cleanup(func() { _ = n.subscriber.Close() })

	if !options.withoutBox {
		n.box = f.newInbox(t, n.pool, options.inbox)
	}
	h := func(msg *message.Message) ([]*message.Message, error) {
		n.mu.Lock()
		n.calls[msg.UUID]++
		n.mu.Unlock()
		if n.box != nil {
			if err := f.write(msg.Context(), msg.UUID, 1); err != nil {
				return nil, err
			}
		}
		if handler == nil {
			return nil, nil
		}
		return nil, handler(msg)
	}
	if n.box != nil {
		h = n.box.Middleware(h)
	}
	for _, middleware := range slices.Backward(options.outside) {
		h = middleware(h)
	}
	n.handler = func(msg *message.Message) error { _, err := h(msg); return err }
	return n
}

func setDefault(value *time.Duration, d time.Duration) {
	if *value == 0 {
		*value = d
	}
}

// start runs the node's Router, and returns what stops it. It is stopped at the end of the test anyway.
func (n *node) start(t *testing.T) (stop func()) {
	t.Helper()
	r, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	r.AddConsumerHandler("billing", orders, n.subscriber, n.handler)
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(context.Background()) }()
	receive(t, r.Running(), "the Router to run")
	stop = sync.OnceFunc(func() {
		if err := errors.Join(r.Close(), n.subscriber.Close(), receive(t, stopped, "the Router to stop")); err != nil {
			t.Errorf("stop the Router: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// store stores messages and stops the test unless all of them are new.
func (n *node) store(t *testing.T, msgs ...*message.Message) {
	t.Helper()
	outcomes, err := n.receiver.Receive(context.Background(), orders, msgs...)
	if err != nil {
		t.Fatal(err)
	}
	for i, outcome := range outcomes {
		if outcome != deferred.Stored {
			t.Fatalf("message %d: want stored, got %v", i, outcome)
		}
	}
}

// subscribe hands out messages to the test instead of a Router.
func (n *node) subscribe(t *testing.T) <-chan *message.Message {
	t.Helper()
	messages, err := n.subscriber.Subscribe(context.Background(), orders)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

// close closes the node's Subscriber and waits for it.
func (n *node) close(t *testing.T) {
	t.Helper()
	if err := n.subscriber.Close(); err != nil {
		t.Fatal(err)
	}
}

func (n *node) callsOf(id string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.calls[id]
}

// pending counts the rows of the queue; inState those in a state.
func (f *fixture) pending(t *testing.T) int {
	t.Helper()
	return f.number(t, "SELECT COUNT(*) FROM "+deferred.DefaultPendingTable)
}

func (f *fixture) inState(t *testing.T, state deferred.State) int {
	t.Helper()
	return f.number(t, "SELECT COUNT(*) FROM "+deferred.DefaultPendingTable+" WHERE state = "+f.database.Placeholder(1), int(state))
}

func (f *fixture) waitForState(t *testing.T, state deferred.State, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d messages to be %s", want, state), func() bool { return f.inState(t, state) == want })
}

// wantCalls stops the test unless the nodes handled the message so often, all together.
func wantCalls(t *testing.T, id string, want int, nodes ...*node) {
	t.Helper()
	calls := 0
	for _, n := range nodes {
		calls += n.callsOf(id)
	}
	if calls != want {
		t.Fatalf("message %s was handled %d times, want %d", id, calls, want)
	}
}

// waitForPending waits until the queue has so many rows.
func (f *fixture) waitForPending(t *testing.T, want int) {
	t.Helper()
	eventually(t, "the queue to have as many rows as it should", func() bool { return f.pending(t) == want })
}

// text returns what a query with one column of bytes and one row returns.
func (f *fixture) text(t *testing.T, query string) string {
	t.Helper()
	var text []byte
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tx, err := f.instance.Admin.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := tx.QueryRowContext(ctx, query).Scan(&text); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return string(text)
}
