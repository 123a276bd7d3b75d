package main

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/watermill-inbox/inbox/deferred"
)

// show makes a name, which may be any bytes, fit into a table: as it is if that is unambiguous and printable, else as a quoted Go string.
func show(name string) string {
	quoted := strconv.Quote(name)
	if name == "" || quoted[1:len(quoted)-1] != name || strings.TrimSpace(name) != name {
		return quoted
	}
	return name
}

// name reads what show shows.
func name(flag, value string) (string, error) {
	if !strings.HasPrefix(value, `"`) {
		return value, nil
	}
	unquoted, err := strconv.Unquote(value)
	if err != nil {
		return "", usage("--%s: %s begins with a quote but is no quoted Go string", flag, value)
	}
	return unquoted, nil
}

// text is a name in JSON, whose strings hold UTF-8 only. Where that is not all, exact is the name in full, and nil elsewhere.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

func exact(name string) []byte {
	if utf8.ValidString(name) {
		return nil
	}
	return []byte(name)
}

func queueOf(value string) (deferred.Queue, error) {
	switch value {
	case kindPending:
		return deferred.Pending, nil
	case kindOutgoing:
		return deferred.Outgoing, nil
	}
	return 0, usage("--queue %q is neither pending nor outgoing", value)
}

func stateOf(value string) (deferred.State, error) {
	for state := deferred.StatePending; state <= deferred.StateStripped; state++ {
		if state.String() == value {
			return state, nil
		}
	}
	return 0, usage("--state %q is none of pending, suspect, claimed, waiting, dead and stripped", value)
}
