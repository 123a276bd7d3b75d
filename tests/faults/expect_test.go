package faults

import (
	"strings"
	"time"
)

// expectation is what must come out of a fault.
type expectation struct {
	reason string // why there is no such fault
	calls  []int  // possible numbers of runs of the handler, redeliveries included
	first  string // what becomes of the delivery with the fault; "" where that depends on the driver
	times  limits // of the service with the fault: short where a timeout must end it
}

const (
	noCheck    = "PostgreSQL tells at COMMIT that a transaction was lost, so the inbox sends no check"
	noUserCode = "no code of the user runs there, only the inbox's and the driver's: kill covers it"
)

const soon = 700 * time.Millisecond

func (l *lab) expect(fault Fault) expectation {
	step := fault.Point.Step
	userCode := strings.HasPrefix(string(step), "effect") || step == Outbox
	switch {
	case step == Check && l.engine == isPostgres:
		return expectation{reason: noCheck}
	case !userCode && (fault.Kind == KindPanic || fault.Kind == KindExit):
		return expectation{reason: noUserCode}
	case fault.Kind == KindCancel:
		return expectCancel(step)
	case step == Commit && fault.Kind != KindKill:
		return l.expectCommit(fault)
	}

	want := expectation{calls: []int{2}, first: "nack"}
	switch {
	case step == Begin, step == Insert, fault.Point == Point{Commit, After}:
		want.calls = []int{1}
	}
	if step == Begin && fault.Kind == KindCut {
		want.first = "" // database/sql may begin once more on another connection
	}
	if fault.Kind == KindSwallow {
		want.times = limits{Commit: soon} // also for the ROLLBACK of a driver that does not hang up
		switch step {
		case Insert:
			want.times.Wait = soon
		case Check, Outbox:
		default:
			want.times.Tx = soon
		}
	}
	return want
}

// expectCancel: the handler is not started when the message's context has ended, and sees when it ends; everything after it goes on.
func expectCancel(step Step) expectation {
	switch step {
	case Begin, Insert:
		return expectation{calls: []int{1}, first: "nack"}
	case Effect(1):
		return expectation{calls: []int{2}, first: "nack"}
	case Effect(2):
		return expectation{calls: []int{1, 2}} // the answer and the end of the context race
	default:
		return expectation{calls: []int{1}, first: "ack"}
	}
}

// expectCommit: the inbox finds out in the same delivery what became of the COMMIT.
func (l *lab) expectCommit(fault Fault) expectation {
	want := expectation{calls: []int{1}, first: "ack"}
	if fault.Point.Moment == Before {
		want.calls = []int{2}
	}
	if fault.Kind == KindSwallow {
		want.times = limits{Commit: soon}
		if l.patient && fault.Point.Moment == Before {
			// The open transaction holds the identity for as long as the connection lasts: the outcome stays unknown.
			want.times.Resolve = soon
			want.first = "nack"
		}
	}
	return want
}
