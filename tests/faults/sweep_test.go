package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sweepSteps are the steps of a delivery in their order.
var sweepSteps = []Step{Begin, Insert, Effect(1), Effect(2), Check, Outbox, Commit}

var sweepKinds = []Kind{KindCut, KindSwallow, KindKill, KindExit, KindCancel, KindPanic}

// TestSweep lets each kind of fault happen once at each point of a delivery, on each database and driver, and redelivers the message until
// it is acked. Every cell has its own message, all of a target share one database.
func TestSweep(t *testing.T) {
	seed := seedOf(t)
	table := newTable()
	forEachTarget(t, func(t *testing.T, target target) {
		l := newLab(t, target)
		var cells []Fault
		for _, step := range sweepSteps {
			for _, moment := range []Moment{Before, After} {
				for _, kind := range sweepKinds {
					cells = append(cells, Fault{Kind: kind, Point: Point{step, moment}})
				}
			}
		}
		rand.New(rand.NewPCG(seed, 0)).Shuffle(len(cells), func(i, j int) { cells[i], cells[j] = cells[j], cells[i] })
		for n, fault := range cells {
			want := l.expect(fault)
			if want.reason != "" {
				table.skip(target.name, fault, want.reason)
				continue
			}
			t.Run(strings.ReplaceAll(fmt.Sprintf("%s/%s", fault.Point, fault.Kind), " ", "_"), func(t *testing.T) {
				table.set(target.name, fault, "FAILED")
				table.set(target.name, fault, l.cell(t, fmt.Sprintf("m%d", n), fault, want))
			})
		}
	})
	table.print()
}

// cell runs one fault and returns the outcome: runs of the handler, what became of each delivery.
func (l *lab) cell(t *testing.T, id string, fault Fault, want expectation) string {
	first := l.deliver(t, id, []Fault{fault}, want.times)
	require.Len(t, first.fired, 1, "the delivery passed %v", first.passed)
	require.False(t, first.released && !l.deaf, "the delivery was not decided before its connection broke")
	if want.first != "" {
		require.Equal(t, want.first, first.String(), first.err)
	}
	again, deliveries := l.redeliver(t, id)
	calls := first.calls + again
	require.Contains(t, want.calls, calls, "runs of the handler; first delivery: %d, %s (%v)", first.calls, first, first.err)
	if first.acked {
		require.Zero(t, again, "runs of the handler after the ack")
	}

	outcome := fmt.Sprintf("%d %s", calls, first)
	if !first.acked {
		outcome += strings.Repeat(" nack", deliveries-1) + " ack"
	}
	if first.released {
		outcome += " *"
	}
	return outcome
}

// forEachTarget runs a test on all targets at once; they mostly wait.
func forEachTarget(t *testing.T, run func(t *testing.T, target target)) {
	var wait sync.WaitGroup
	for _, target := range targets {
		wait.Add(1)
		go func() {
			defer wait.Done()
			t.Run(target.name, func(t *testing.T) { run(t, target) })
		}()
	}
	wait.Wait()
}

// seedVariable replays a run.
const seedVariable = "INBOX_TEST_SEED"

// seedOf returns the seed of a run and makes a failure tell it.
func seedOf(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano()) % 1_000_000
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, seedVariable)
	}
	t.Logf("%s=%d", seedVariable, seed)
	return seed
}

// table collects the outcomes of the sweep.
type table struct {
	mu      sync.Mutex
	cells   map[string]string
	reasons []string
}

func newTable() *table { return &table{cells: map[string]string{}} }

func (t *table) set(target string, fault Fault, outcome string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cells[target+fault.String()] = outcome
}

func (t *table) skip(target string, fault Fault, reason string) {
	t.mu.Lock()
	if !slices.Contains(t.reasons, reason) {
		t.reasons = append(t.reasons, reason)
		slices.Sort(t.reasons)
	}
	t.mu.Unlock()
	t.set(target, fault, reason)
}

// print writes the table to the standard output, which `make faults` shows.
func (t *table) print() {
	const width = 16
	var b strings.Builder
	fmt.Fprintf(&b, "\nA cell is: runs of the handler, first delivery, redeliveries. In each, effect, identity and outgoing row were stored once.\n\n%-24s", "")
	for _, target := range targets {
		fmt.Fprintf(&b, "%-*s", width, target.name)
	}
	b.WriteByte('\n')
	for _, step := range sweepSteps {
		for _, moment := range []Moment{Before, After} {
			for _, kind := range sweepKinds {
				point := Point{step, moment}
				fmt.Fprintf(&b, "%-16s%-8s", point, kind)
				for _, target := range targets {
					fmt.Fprintf(&b, "%-*s", width, t.outcome(target.name, Fault{Kind: kind, Point: point}))
				}
				b.WriteByte('\n')
			}
		}
	}
	b.WriteString("\n*  decided only when the connection broke: the driver waits for an answer whatever the context says\n")
	for n, reason := range t.reasons {
		fmt.Fprintf(&b, "-%d %s\n", n+1, reason)
	}
	fmt.Print(b.String())
}

func (t *table) outcome(target string, fault Fault) string {
	outcome := t.cells[target+fault.String()]
	if n := slices.Index(t.reasons, outcome); n >= 0 {
		return fmt.Sprintf("-%d", n+1)
	}
	if outcome == "" {
		return "not run" // no server, or -run chose others: the log of the test says which
	}
	return outcome
}
