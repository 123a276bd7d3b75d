package main

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/deferred"
)

func (a *app) printMessage(m deferred.StoredMessage, msg *message.Message, form string) error {
	var b strings.Builder
	line := func(label, value string) { fmt.Fprintf(&b, "%-13s %s\n", label, value) }
	line("number", strconv.FormatInt(m.Number, 10))
	line("state", m.State.String())
	line("consumer", show(m.Consumer))
	line("topic", show(m.Topic))
	line("producer", show(m.Identity.Producer))
	line("id", show(m.Identity.ID))
	line("uuid", show(m.UUID))
	line("ordering key", show(m.OrderingKey))
	line("attempts", strconv.Itoa(m.Attempts))
	line("received", timeText(m.Received))
	line(dueLabel(m.State), timeText(m.Due))
	line("reason", show(m.Reason))
	line("last error", show(m.LastError))
	if msg != nil {
		for _, key := range slices.Sorted(maps.Keys(msg.Metadata)) {
			line("metadata", show(key)+" = "+show(msg.Metadata[key]))
		}
		line("payload", count(len(msg.Payload), "byte"))
		b.WriteString(payloadText(msg.Payload, form))
	}
	return a.printf("%s", b.String())
}

func payloadText(payload []byte, form string) string {
	switch {
	case len(payload) == 0:
		return ""
	case form == "hex", form == "auto" && !isPrintable(string(payload)):
		return hex.Dump(payload)
	}
	return printable(string(payload)) + "\n"
}

// dueLabel says what Due means.
func dueLabel(state deferred.State) string {
	switch state {
	case deferred.StateClaimed:
		return "lease ends"
	case deferred.StateDead, deferred.StateStripped:
		return "died"
	}
	return "available"
}

func isPrintable(s string) bool { return utf8.ValidString(s) && printable(s) == s }

// printable leaves out nothing, but what could paint a terminal is escaped.
func printable(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r) && (r != utf8.RuneError || size > 1):
			b.WriteRune(r)
		default:
			quoted := strconv.Quote(s[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return b.String()
}
