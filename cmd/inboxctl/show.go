package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spf13/cobra"

	"github.com/watermill-inbox/inbox/deferred"
)

func (a *app) showCommand() *cobra.Command {
	var queueName, form string
	cmd := &cobra.Command{
		Use:   "show NUMBER",
		Short: "Show one message: identity, payload, attempts, last error",
		Long: `Shows all that is stored of a message, without a claim on it. A processed message is in no queue any more.

The payload is shown as text where it is printable, else as a hexadecimal dump; --payload text and --payload hex decide. JSON has it in base64, and
as text where it is UTF-8.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("show takes the number of one message, as list shows it")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			numbers, err := numbersOf(args)
			if err != nil {
				return err
			}
			queue, err := queueOf(queueName)
			if err != nil {
				return err
			}
			if !slices.Contains([]string{"auto", "text", "hex"}, form) {
				return usage("--payload %q is none of auto, text and hex", form)
			}
			return a.with(cmd.Context(), func(db *database) error { return a.show(cmd.Context(), db, queue, numbers[0], form) })
		},
	}
	queueFlag(cmd, &queueName)
	cmd.Flags().StringVar(&form, "payload", "auto", "how to show the payload in a table: auto, text or hex")
	return cmd
}

// numbersOf reads the numbers of messages.
func numbersOf(args []string) ([]int64, error) {
	var numbers []int64
	for _, arg := range args {
		number, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || number <= 0 {
			return nil, usage("%q is not the number of a message, as list shows it", arg)
		}
		if !slices.Contains(numbers, number) {
			numbers = append(numbers, number)
		}
	}
	return numbers, nil
}

// fullMessage is a messageReport with what a list leaves out.
type fullMessage struct {
	messageReport
	Metadata    map[string]string `json:"metadata"` // null, as the payload, if the row cannot be read
	Payload     []byte            `json:"payload_base64"`
	PayloadText *string           `json:"payload_text,omitempty"` // if it is UTF-8
}

func (a *app) show(ctx context.Context, db *database, queue deferred.Queue, number int64, form string) error {
	store, err := a.store(ctx, db, queue)
	if err != nil {
		return err
	}
	found, err := a.page(ctx, store, deferred.Filter{After: number - 1, Limit: 1})
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0].Number != number {
		return noSuchMessage(number)
	}
	step, cancel := a.step(ctx)
	defer cancel()
	msg, err := store.Load(step, number)
	if errors.Is(err, deferred.ErrNotFound) { // since then
		return noSuchMessage(number)
	}
	// A row that cannot be read is dead for that reason. What else is known of it is shown nevertheless.
	full := fullOf(found[0], msg)
	return errors.Join(err, a.print(full, func() error { return a.printMessage(found[0], msg, form) }))
}

// fullOf makes a report without metadata and payload if there is no msg.
func fullOf(m deferred.StoredMessage, msg *message.Message) fullMessage {
	full := fullMessage{messageReport: reportOf(m)}
	if msg == nil {
		return full
	}
	full.Metadata, full.Payload = map[string]string{}, append([]byte{}, msg.Payload...)
	for key, value := range msg.Metadata {
		full.Metadata[text(key)] = text(value)
	}
	if payload := string(msg.Payload); utf8.ValidString(payload) {
		full.PayloadText = &payload
	}
	return full
}

func noSuchMessage(number int64) error {
	return exit(exitNothing, "there is no message %d in the queue: most likely it is processed", number)
}

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
	case deferred.StateDead:
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
