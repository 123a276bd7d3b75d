package faults

import (
	"fmt"
	"regexp"
	"strings"
)

// Step is a statement of a delivery.
type Step string

// The steps of a delivery. The statements of a handler are Effect(1), Effect(2) and so on.
const (
	Begin    Step = "begin"
	Insert   Step = "insert"
	Compare  Step = "compare"
	Check    Step = "check"
	Outbox   Step = "outbox"
	Commit   Step = "commit"
	Rollback Step = "rollback"
)

// Effect is the n-th statement of a handler, counted from 1. Its text has Mark(n) in it.
func Effect(n int) Step { return Step(fmt.Sprintf("effect %d", n)) }

// Mark is the comment by which the n-th statement of a handler is recognised.
func Mark(n int) string { return fmt.Sprintf("/* %s */", Effect(n)) }

var effectMark = regexp.MustCompile(`/\* (effect \d+) \*/`)

// Moment is the side of a step.
type Moment string

// Before is when the client has sent the statement and the server has not got it; After is when the server has run it and the client
// has got no answer.
const (
	Before Moment = "before"
	After  Moment = "after"
)

// Point is a moment of a step.
type Point struct {
	Step   Step
	Moment Moment
}

func (p Point) String() string { return string(p.Moment) + " " + string(p.Step) }

// Verdict is what becomes of a connection at a point.
type Verdict int

const (
	// Pass lets the statement, or the answer, go on.
	Pass Verdict = iota

	// Cut drops it and ends the connection on both sides.
	Cut

	// Hold drops it and keeps both sides open, in silence, until the client hangs up or Release is called.
	Hold
)

// Hook is called at every point. The connection waits for it.
type Hook func(Point) Verdict

// Statements recognises steps by the tables that statements name.
type Statements struct {
	Inbox  string // table of identities
	Outbox string // table of outgoing messages
}

// Step returns the step that a statement is, or "".
func (s Statements) Step(query string) Step {
	if mark := effectMark.FindStringSubmatch(query); mark != nil {
		return Step(mark[1])
	}
	verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(query)), " ")
	switch strings.TrimRight(verb, ";") {
	case "BEGIN", "START":
		return Begin
	case "COMMIT":
		return Commit
	case "ROLLBACK":
		return Rollback
	case "INSERT":
		switch {
		case strings.Contains(query, s.Inbox):
			return Insert
		case strings.Contains(query, s.Outbox):
			return Outbox
		}
	case "SELECT":
		switch {
		case !strings.Contains(query, s.Inbox):
		case strings.Contains(query, "fingerprint"):
			return Compare
		case strings.Contains(query, "SELECT 1"):
			return Check
		}
	}
	return ""
}
