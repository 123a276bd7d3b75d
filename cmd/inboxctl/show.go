package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spf13/cobra"

	"github.com/watermill-inbox/inbox/deferred"
)

func (a *app) showCommand() *cobra.Command {
	var (
		queueName, form string
		processed       processedQuestion
	)
	cmd := &cobra.Command{
		Use:   "show [NUMBER]",
		Short: "Show one message, or whether an identity is processed",
		Long: `Shows all that is stored of a message, without a claim on it: identity, payload, attempts, last error. A processed message is in no queue any more; with
--consumer and --id in place of a number it shows when that identity was processed.

The payload is shown as text where it is printable, else as a hexadecimal dump; --payload text and --payload hex decide. JSON has it in base64, and
as text where it is UTF-8.`,
		Example: "  inboxctl show 17\n  inboxctl show 17 --queue outgoing --payload hex\n  inboxctl show --consumer reserve-stock --id evt-42",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 && !(len(args) == 0 && cmd.Flags().Changed("id")) || len(args) == 1 && processed != (processedQuestion{}) {
				return usage("show takes the number of one message, as list shows it, or --consumer and --id")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.showProcessed(cmd.Context(), processed)
			}
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
	cmd.Flags().StringVar(&processed.consumer, "consumer", "", "with --id: the consumer")
	cmd.Flags().StringVar(&processed.id, "id", "", "is this id processed?")
	cmd.Flags().StringVar(&processed.producer, "producer", "", "with --id: its producer, if it has one")
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
	if errors.Is(err, deferred.ErrStripped) {
		err = nil // the state says so
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
