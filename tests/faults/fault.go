package faults

import (
	"fmt"
	"math/rand/v2"
	"sync"
)

// Kind is what goes wrong at a point.
type Kind string

// The kinds of faults.
const (
	KindCut     Kind = "cut"     // the connection breaks
	KindKill    Kind = "kill"    // SIGKILL of the client's process
	KindExit    Kind = "exit"    // the handler ends its process
	KindSwallow Kind = "swallow" // neither statement nor answer arrive, the connection stays open
	KindCancel  Kind = "cancel"  // the message's context ends
	KindPanic   Kind = "panic"   // the code of the user panics
	KindDelay   Kind = "delay"   // nothing is lost, it takes longer
)

// Fault is one thing that goes wrong once: at a point, or else at the n-th point that is passed, counted from 1.
type Fault struct {
	Kind  Kind
	Point Point
	Nth   int
}

func (f Fault) String() string {
	if f.Nth > 0 {
		return fmt.Sprintf("%s at point %d", f.Kind, f.Nth)
	}
	return fmt.Sprintf("%s %s", f.Kind, f.Point)
}

// Schedule is what goes wrong in each delivery of a message. Deliveries beyond its end are left alone.
type Schedule [][]Fault

// NewSchedule makes a schedule of up to three deliveries with up to three faults each. The same source makes the same schedule. Every other
// delivery loses the answer to its COMMIT first, because what follows then is what few tests see.
func NewSchedule(source *rand.Rand, kinds ...Kind) Schedule {
	var schedule Schedule
	for range 1 + source.IntN(3) {
		var faults []Fault
		at := 0
		if source.IntN(2) == 0 {
			commit := Point{Commit, []Moment{Before, After}[source.IntN(2)]}
			faults = append(faults, Fault{Kind: []Kind{KindCut, KindSwallow}[source.IntN(2)], Point: commit})
			at = 12 // the commit, or one point before or behind it
		}
		for range 1 + source.IntN(3) {
			at += 1 + source.IntN(10)
			faults = append(faults, Fault{Kind: kinds[source.IntN(len(kinds))], Nth: at})
		}
		schedule = append(schedule, faults)
	}
	return schedule
}

// Injector lets the faults of one delivery happen.
type Injector struct {
	faults []Fault
	act    func(Fault) Verdict

	mu     sync.Mutex
	passed []Point
	fired  []string
}

// NewInjector makes an injector that calls act for each fault when it is due.
func NewInjector(faults []Fault, act func(Fault) Verdict) *Injector {
	return &Injector{faults: append([]Fault(nil), faults...), act: act}
}

// At is a Hook.
func (i *Injector) At(point Point) Verdict {
	fault, due := i.due(point)
	if !due {
		return Pass
	}
	return i.act(fault)
}

func (i *Injector) due(point Point) (Fault, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.passed = append(i.passed, point)
	for n, fault := range i.faults {
		if fault.Nth == len(i.passed) || fault.Nth == 0 && fault.Point == point {
			i.faults = append(i.faults[:n], i.faults[n+1:]...)
			i.fired = append(i.fired, fmt.Sprintf("%s %s", fault.Kind, point))
			fault.Point = point
			return fault, true
		}
	}
	return Fault{}, false
}

// Passed returns the points passed so far.
func (i *Injector) Passed() []Point {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]Point(nil), i.passed...)
}

// Fired returns the faults that have happened.
func (i *Injector) Fired() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]string(nil), i.fired...)
}
