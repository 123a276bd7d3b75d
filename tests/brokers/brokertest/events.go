package brokertest

import (
	"sync"

	"github.com/watermill-inbox/inbox"
)

// event is one line that a worker prints.
type event struct {
	Kind string `json:"kind"`
	From int    `json:"-"` // the worker, counted from 1

	ID       string `json:"id,omitempty"`
	Producer string `json:"producer,omitempty"`

	Key        string `json:"key,omitempty"`         // of handling: inbox.IdempotencyKey
	Outcome    string `json:"outcome,omitempty"`     // of ended
	NoIdentity bool   `json:"no_identity,omitempty"` // of ended: the error is inbox.ErrNoIdentity
	Text       string `json:"text,omitempty"`        // the error
}

// Kinds of events.
const (
	ready     = "ready"
	delivered = "delivered" // a message has come, before any middleware of the inbox
	handling  = "handling"  // the handler runs
	held      = "held"      // the worker waits to be killed, or for leave to go on
	ended     = "ended"     // the inbox has finished the delivery, which is not acked yet
	logged    = "logged"    // an error of the subscriber
	exited    = "exited"
)

// Outcomes of ended. The last stands for both in a pattern.
var (
	processed = inbox.Processed.String()
	duplicate = inbox.Duplicate.String()
)

const succeeded = "processed or duplicate"

// eventLog has the events of all workers of one case.
type eventLog struct {
	mu      sync.Mutex
	all     []event
	changed chan struct{}
}

func newEventLog() *eventLog { return &eventLog{changed: make(chan struct{}, 1)} }

func (l *eventLog) add(e event) {
	l.mu.Lock()
	l.all = append(l.all, e)
	l.mu.Unlock()
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// matching returns the events that are like the pattern in all fields that the pattern has.
func (l *eventLog) matching(pattern event) (found []event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.all {
		if e.like(pattern) {
			found = append(found, e)
		}
	}
	return found
}

func (e event) like(pattern event) bool {
	is := func(field, wanted string) bool { return wanted == "" || field == wanted }
	outcome := is(e.Outcome, pattern.Outcome) || pattern.Outcome == succeeded && (e.Outcome == processed || e.Outcome == duplicate)
	return is(e.Kind, pattern.Kind) && is(e.ID, pattern.ID) && outcome &&
		(pattern.From == 0 || e.From == pattern.From) && (!pattern.NoIdentity || e.NoIdentity)
}

// await returns the events like pattern once there are n of them. It fails the test if a worker ends that nobody ended.
func (c *testCase) await(what string, n int, pattern event) []event {
	c.Helper()
	for {
		if found := c.events.matching(pattern); len(found) >= n {
			return found
		}
		for _, e := range c.events.matching(event{Kind: exited}) {
			if p := c.processes[e.From-1]; !p.ending.Load() {
				c.Fatalf("worker %d ended while waiting for %s: %v\n%s", e.From, what, p.wait(), p.stderr.String())
			}
		}
		select {
		case <-c.events.changed:
		case <-c.ctx.Done():
			c.Fatalf("still waiting for %s after %s", what, caseLimit)
		}
	}
}

// tell logs what happened, for a failed test.
func (c *testCase) tell() {
	const most = 100
	happened := c.events.matching(event{})
	for i, e := range happened[:min(len(happened), most)] {
		c.Logf("event %d: %+v", i, e)
	}
}
