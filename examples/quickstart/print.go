package main

import "fmt"

const rowFormat = "%8v  %-7s  %-11s  %-8s  %7v  %10v  %17v\n"

func (s *story) printHeader(start state) {
	fmt.Fprintln(s.w, "The consumer report-worker counts reports: one for message "+lostAck+", one for "+failing+", however often they come.")
	fmt.Fprintln(s.w)
	fmt.Fprintf(s.w, rowFormat, "delivery", "message", "outcome", "answer", "counter", "inbox rows", "outgoing messages")
	fmt.Fprintf(s.w, rowFormat, "", "", "", "", start.counter, start.identities, start.outgoing)
}

func (s *story) printStep(number int, d delivery) {
	fmt.Fprintf(s.w, rowFormat, number, d.id, d.outcome, d.answer, d.after.counter, d.after.identities, d.after.outgoing)
}

func (s *story) printMeaning(want step, d delivery) {
	fmt.Fprintf(s.w, "%8s  %s\n", "", want.meaning)
	if d.err != nil {
		fmt.Fprintf(s.w, "%8s  Its error: %v\n", "", d.err)
	}
}

func (s *story) printRelay() {
	fmt.Fprintf(s.w, "\nNow the relay takes the outgoing messages from the outbox to the topic %s. A subscriber there gets:\n", createdTopic)
}

func (s *story) printDelivered(payload string) {
	fmt.Fprintf(s.w, "%8s  %s\n", "", payload)
}

func (s *story) printConclusion() {
	fmt.Fprintf(s.w, "\n%d deliveries, %d reports, %d announcements, none twice. The counter is %d, as it should be.\n",
		len(steps), s.now.identities, s.now.outgoing, s.now.counter)
}
