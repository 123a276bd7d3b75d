package inboxtest

import (
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

var eventCases = []testCase{
	{name: "Events_OfEveryEnd", run: testEvents},
	{name: "Events_GivenBackAtClose", run: testEventOfClose},
	{name: "Events_OfSweeps", run: testEventsOfSweeps},
	{name: "Events_LeaseLost", run: testEventOfLostLease},
	{name: "Events_LeaseLostAtTheEnd", run: testEventOfLostClaim},
	{name: "Events_PanicsChangeNothing", run: testEventPanics},
}

// events is an Observer that counts what it is told.
type events struct {
	mu    sync.Mutex
	count map[deferred.Event]int
	wrong []deferred.EventReport // of another consumer, topic or queue
}

// ObserveEvent is for the Subscriber.
func (e *events) ObserveEvent(report deferred.EventReport) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count == nil {
		e.count = map[deferred.Event]int{}
	}
	e.count[report.Event] += report.Messages
	if report.Consumer != "billing" || report.Topic != orders || report.Queue != deferred.Pending {
		e.wrong = append(e.wrong, report)
	}
}

func (e *events) of(event deferred.Event) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.count[event]
}

// wantEvents stops the test unless these are all events so far.
func (e *events) wantEvents(t *testing.T, want map[deferred.Event]int) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !maps.Equal(e.count, want) || len(e.wrong) > 0 {
		t.Fatalf("events %v, want %v; of others: %+v", e.count, want, e.wrong)
	}
}

// testEvents: each claim ends in one of the other events.
func testEvents(t *testing.T, f *fixture) {
	seen := &events{}
	var n *node
	n = f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{Observer: seen, MaxAttempts: 2}}, func(msg *message.Message) error {
		switch {
		case msg.UUID == "dies", msg.UUID == "once" && n.callsOf("once") == 1:
			return errHandler
		case msg.UUID == "unreadable":
			t.Error("was handled")
		}
		return nil
	})
	n.store(t, newMessage("unreadable"))
	f.exec(t, "UPDATE inbox_pending SET metadata = "+f.bytes("{"))
	n.store(t, newMessage("m1"), newMessage("m2"), newMessage("once"), newMessage("dies"))
	stop := n.start(t)
	f.waitForPending(t, 2)
	f.waitForState(t, deferred.StateDead, 2)
	stop()
	seen.wantEvents(t, map[deferred.Event]int{
		deferred.Claimed:   6, // m1, m2, and the others twice
		deferred.Completed: 3,
		deferred.Retried:   2,
		deferred.Died:      2,
	})
	f.want(t, rows{biz: 3, inbox: 3})
}

func testEventOfClose(t *testing.T, f *fixture) {
	seen := &events{}
	n := f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{Observer: seen, CloseTimeout: 20 * time.Millisecond}}, nil)
	n.store(t, newMessage("m1"))
	receive(t, n.subscribe(t), "the message")
	n.close(t)
	seen.wantEvents(t, map[deferred.Event]int{deferred.Claimed: 1, deferred.GivenBack: 1})
	if f.inState(t, deferred.StatePending) != 1 {
		t.Fatal("it was not given back")
	}
}

func testEventsOfSweeps(t *testing.T, f *fixture) {
	seen := &events{}
	n := f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{Observer: seen, MaxAttempts: 3, Lease: 6 * time.Second}}, nil)
	n.store(t, newMessage("limit"))
	f.exec(t, "UPDATE inbox_pending SET state = 2, token = 7, attempts = 3, due_at = 0")
	n.store(t, newMessage("once"))
	f.exec(t, "UPDATE inbox_pending SET state = 2, token = 7, attempts = 1, due_at = 0 WHERE state = 0")
	stop := n.start(t)
	f.waitForState(t, deferred.StateDead, 1)
	f.waitForPending(t, 1)
	stop()
	seen.wantEvents(t, map[deferred.Event]int{deferred.Deserted: 1, deferred.Died: 1, deferred.Claimed: 1, deferred.Completed: 1})
	f.want(t, rows{biz: 1, inbox: 1})
}

// testEventOfLostLease takes the claim away while the handler runs, so that a renewal notices it.
func testEventOfLostLease(t *testing.T, f *fixture) {
	seen, handler := &events{}, newOverrun()
	n := handler.nodeWith(t, f, nodeOptions{subscriber: deferred.SubscriberConfig{Lease: time.Second, Observer: seen}})
	n.store(t, newMessage("m1"))
	stop := n.start(t)
	receive(t, handler.started, "the handler")
	f.exec(t, "UPDATE inbox_pending SET token = token + 1") // as another worker's claim does
	receive(t, handler.ended, "the end of the message's context")
	close(handler.goOn)
	stop()
	seen.wantEvents(t, map[deferred.Event]int{deferred.Claimed: 1, deferred.LeaseLost: 1})
	f.want(t, rows{})
}

// testEventOfLostClaim takes it away before the Inbox begins, long before a renewal would notice.
func testEventOfLostClaim(t *testing.T, f *fixture) {
	seen := &events{}
	n := f.newNode(t, nodeOptions{
		subscriber: deferred.SubscriberConfig{Lease: standstill, Observer: seen},
		outside: []message.HandlerMiddleware{func(next message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				f.exec(t, "UPDATE inbox_pending SET token = token + 1")
				produced, err := next(msg)
				if !errors.Is(err, inbox.ErrClaimLost) {
					t.Errorf("want ErrClaimLost, got %v", err)
				}
				return produced, err
			}
		}},
	}, nil)
	n.store(t, newMessage("m1"))
	stop := n.start(t)
	eventually(t, "the loss to be told", func() bool { return seen.of(deferred.LeaseLost) > 0 })
	stop()
	seen.wantEvents(t, map[deferred.Event]int{deferred.Claimed: 1, deferred.LeaseLost: 1})
	f.want(t, rows{})
}

// faultyEvents is an Observer with a fault.
type faultyEvents struct{}

func (faultyEvents) ObserveEvent(deferred.EventReport) { panic("no such label") }

func testEventPanics(t *testing.T, f *fixture) {
	n := f.newNode(t, nodeOptions{subscriber: deferred.SubscriberConfig{Observer: faultyEvents{}, MaxAttempts: 1}}, func(msg *message.Message) error {
		if msg.UUID == "dies" {
			return errHandler
		}
		return nil
	})
	n.store(t, newMessage("m1"), newMessage("dies"))
	n.start(t)
	f.waitForState(t, deferred.StateDead, 1)
	f.waitForPending(t, 1)
	f.want(t, rows{biz: 1, inbox: 1})
}
