package deferred

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// ReceiveOutcome is what became of one message. The zero value is none.
type ReceiveOutcome int

const (
	// Stored: the message is durable and waits to be processed.
	Stored ReceiveOutcome = iota + 1

	// AlreadyPending: the same message waits already. It is not stored again.
	AlreadyPending

	// AlreadyProcessed: the consumer has processed the message. It is not stored again.
	AlreadyProcessed

	// Mismatch: the identity belongs to a message with other content, which waits or was processed. Nothing is stored.
	Mismatch

	// Refused: the message cannot be stored, or the database did not do it. Nothing is stored, as far as is known.
	Refused

	// Skipped: ReceiverConfig.Skip says that nobody wants the message. Nothing is stored.
	Skipped
)

// String returns the name of the outcome.
func (o ReceiveOutcome) String() string {
	names := []string{"none", "stored", "already pending", "already processed", "mismatch", "refused", "skipped"}
	if o < 0 || int(o) >= len(names) {
		return fmt.Sprintf("outcome %d", int(o))
	}
	return names[o]
}

// ReceiveError lists the messages of one call that are not durable.
type ReceiveError struct {
	Topic  string
	Total  int // messages of the call
	Failed []FailedMessage
}

// FailedMessage is a message that was not stored.
type FailedMessage struct {
	Index int    // in the arguments of the call
	UUID  string // of the message
	Err   error  // names consumer and id
}

// Error names the first failed messages and their causes; Failed has all of them.
func (e *ReceiveError) Error() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "deferred: receive from topic %q: %d of %d messages not stored:", e.Topic, len(e.Failed), e.Total)
	for n, failed := range e.Failed {
		if n == maxListed {
			fmt.Fprintf(b, " and %d more;", len(e.Failed)-n)
			break
		}
		fmt.Fprintf(b, " [%d] %v;", failed.Index, failed.Err)
	}
	return strings.TrimSuffix(b.String(), ";")
}

// maxListed is how many of its messages the text of a ReceiveError has.
const maxListed = 5

// Unwrap returns the causes, so that errors.Is, inbox.IsPoison and inbox.IsRetryable see them. Those that are no message's fault come first, so that a call
// is poison only if all of its failed messages are.
func (e *ReceiveError) Unwrap() []error {
	var transient, poison []error
	for _, failed := range e.Failed {
		if inbox.IsPoison(failed.Err) {
			poison = append(poison, failed.Err)
		} else {
			transient = append(transient, failed.Err)
		}
	}
	return append(transient, poison...)
}

// ErrTooLarge says that payload plus metadata have more than ReceiverConfig.MaxMessageSize bytes, or the topic or ordering key is too long.
var ErrTooLarge = errors.New("message is too large")

// ErrClosed says that the Receiver or Subscriber is closed.
var ErrClosed = errors.New("deferred: closed")

// reception is one call of Receive.
type reception struct {
	*Receiver
	ctx      context.Context
	topic    string
	messages []*message.Message
	outcomes []ReceiveOutcome
	errs     []error
	held     map[string]bool // ordering keys with a message that the database did not store
}

// item is one message of a reception that may be stored.
type item struct {
	storedMessage
	index int
	same  []int // other indexes with the same identity
}

// Receive stores messages of a topic. It returns an outcome for each message, in their order, and a *ReceiveError if one of them is not durable
// here, neither by this call nor before. One message that cannot be stored does no harm to the others.
func (r *Receiver) Receive(ctx context.Context, topic string, messages ...*message.Message) ([]ReceiveOutcome, error) {
	if r.closed.Load() {
		return nil, ErrClosed
	}
	rec := &reception{
		Receiver: r, ctx: ctx, topic: topic, messages: messages,
		outcomes: make([]ReceiveOutcome, len(messages)), errs: make([]error, len(messages)), held: map[string]bool{},
	}
	for _, chunk := range chunks(rec.items()) {
		rec.store(chunk)
	}
	if slices.Contains(rec.outcomes, Stored) {
		r.config.Wakeup.Wake()
	}
	return rec.outcomes, rec.err()
}

func (r *reception) err() error {
	failed := &ReceiveError{Topic: r.topic, Total: len(r.messages)}
	for n, err := range r.errs {
		if err != nil {
			failed.Failed = append(failed.Failed, FailedMessage{Index: n, UUID: r.messages[n].UUID, Err: err})
		}
	}
	if len(failed.Failed) == 0 {
		return nil
	}
	return failed
}

func (r *reception) refuse(index int, outcome ReceiveOutcome, err error) {
	r.outcomes[index], r.errs[index] = outcome, err
}

// items describes what may be stored, each identity once.
func (r *reception) items() []*item {
	var items []*item
	known := map[inbox.Identity]*item{}
	for n, msg := range r.messages {
		if r.config.Skip(msg) {
			r.outcomes[n] = Skipped
			continue
		}
		stored, err := r.describe(msg)
		if err != nil {
			r.refuse(n, Refused, err)
			continue
		}
		identity := inbox.Identity{Producer: stored.Producer, ID: stored.ID}
		first, ok := known[identity]
		switch {
		case !ok:
			known[identity] = &item{storedMessage: stored, index: n}
			items = append(items, known[identity])
		case differ(first.Fingerprint, stored.Fingerprint):
			r.refuse(n, Mismatch, mismatch(stored.Row, first.Fingerprint))
		default:
			first.same = append(first.same, n)
		}
	}
	return items
}

func (r *reception) describe(msg *message.Message) (storedMessage, error) {
	row, err := inbox.NewRow(r.config.Consumer, msg, r.config.Identity, r.config.Fingerprint)
	if err != nil {
		return storedMessage{}, err
	}
	return describeMessage(msg, row, r.topic, r.config.OrderingKey(msg), r.config.Delay(msg), r.config.MaxMessageSize)
}

// describeMessage checks all that the columns can hold.
func describeMessage(msg *message.Message, row inbox.Row, topic, orderingKey string, delay time.Duration, maxSize int) (storedMessage, error) {
	metadata, err := encodeMetadata(msg.Metadata)
	if err != nil {
		return storedMessage{}, fmt.Errorf("consumer %q: message %q: metadata: %w", row.Consumer, row.ID, err)
	}
	m := storedMessage{Row: row, topic: topic, orderingKey: orderingKey, metadata: metadata, payload: string(msg.Payload), delay: max(0, delay)}
	if msg.UUID != row.ID {
		m.uuid = "=" + msg.UUID
	}
	for _, part := range []struct {
		name       string
		size, most int
	}{
		{"payload and metadata have", len(m.payload) + len(m.metadata), maxSize},
		{"topic has", len(topic), MaxTopicLength},
		{"ordering key has", len(orderingKey), MaxOrderingKeyLength},
		{"UUID has", len(msg.UUID), inbox.MaxIDLength},
	} {
		if part.size > part.most {
			return storedMessage{}, fmt.Errorf("consumer %q: message %q: %w: %s %d bytes, at most %d are accepted",
				row.Consumer, row.ID, ErrTooLarge, part.name, part.size, part.most)
		}
	}
	return m, nil
}

// chunks cuts items into what one statement takes.
func chunks(items []*item) [][]*item {
	const maxRows, maxBytes = 200, 1 << 20
	var (
		all  [][]*item
		size int
	)
	for _, it := range items {
		length := len(it.payload) + len(it.metadata)
		if len(all) == 0 || len(all[len(all)-1]) == maxRows || size+length > maxBytes {
			all, size = append(all, nil), 0
		}
		all[len(all)-1] = append(all[len(all)-1], it)
		size += length
	}
	return all
}

// store writes a chunk. If the database refuses it as a whole, each message is tried alone, so that one bad message harms no neighbour.
func (r *reception) store(chunk []*item) {
	// All Receivers lock keys in the same order, so that they do not end in a deadlock. The messages of ordering keys keep their own
	// order instead, and their deadlocks are tried again.
	if !slices.ContainsFunc(chunk, func(it *item) bool { return it.orderingKey != "" }) {
		slices.SortFunc(chunk, func(a, b *item) int { return cmp.Or(cmp.Compare(a.Producer, b.Producer), cmp.Compare(a.ID, b.ID)) })
	}
	chunk = slices.DeleteFunc(chunk, r.mustWait)
	err := r.storeOnce(chunk)
	if err == nil {
		return
	}
	if len(chunk) == 1 || r.queue.Classify(err) != inbox.ClassOther || r.ctx.Err() != nil {
		for _, it := range chunk {
			r.failed(it, err)
		}
		return
	}
	for _, it := range chunk {
		if r.mustWait(it) {
			continue
		}
		if err := r.storeOnce([]*item{it}); err != nil {
			r.failed(it, err)
		}
	}
}

var errBehind = errors.New("an earlier message with its ordering key was not stored")

// mustWait refuses a message that would overtake one that is still to be stored.
func (r *reception) mustWait(it *item) bool {
	if !r.held[it.orderingKey] {
		return false
	}
	r.failed(it, errBehind)
	return true
}

// failed refuses a message because of the database, which is never the message's fault.
func (r *reception) failed(it *item, err error) {
	if it.orderingKey != "" {
		r.held[it.orderingKey] = true
	}
	err = &inbox.Error{
		Consumer: it.Consumer, Identity: inbox.Identity{Producer: it.Producer, ID: it.ID},
		Stage: inbox.StageReceive, Err: err,
	}
	for _, n := range append(it.same, it.index) {
		r.refuse(n, Refused, err)
	}
}

// storeOnce writes messages and reads what became of each. It is safe to repeat, which is how a COMMIT without an answer is resolved.
func (r *reception) storeOnce(chunk []*item) error {
	if len(chunk) == 0 {
		return nil
	}
	stored := make([]storedMessage, len(chunk))
	for n, it := range chunk {
		stored[n] = it.storedMessage
	}
	token := newToken()
	var found []rowOutcome
	err := r.queue.repeat(r.ctx, func(ctx context.Context, tx wsql.Tx) (err error) {
		if err := run(ctx, tx, r.queue.insert(stored, token)); err != nil {
			return err
		}
		found, err = r.queue.readOutcomes(ctx, tx, stored)
		return err
	})
	if err != nil {
		return err
	}
	for n, it := range chunk {
		r.decide(it, found[n], token)
	}
	return nil
}

func (r *reception) decide(it *item, found rowOutcome, token int64) {
	for _, n := range append(it.same, it.index) {
		switch {
		case found.reception == token && n == it.index:
			r.outcomes[n] = Stored
		case found.reception == token:
			r.outcomes[n] = AlreadyPending
		case found.processed && differ(found.processedFingerprint, it.Fingerprint):
			r.refuse(n, Mismatch, mismatch(it.Row, found.processedFingerprint))
		case found.processed:
			r.outcomes[n] = AlreadyProcessed
		case differ(found.fingerprint, it.Fingerprint):
			r.refuse(n, Mismatch, mismatch(it.Row, found.fingerprint))
		default:
			r.outcomes[n] = AlreadyPending
		}
	}
}

// rowOutcome is what the database says about one message.
type rowOutcome struct {
	reception            int64 // 0: not in the queue
	fingerprint          string
	processed            bool
	processedFingerprint string
}

var errVanished = errors.New("a message was neither stored nor found: it was processed or removed at the same time")

func (t *table) readOutcomes(ctx context.Context, tx wsql.Tx, stored []storedMessage) ([]rowOutcome, error) {
	found, seen := make([]rowOutcome, len(stored)), 0
	err := sqltx.Each(ctx, tx, t.outcomes(stored), func(scan func(...any) error) error {
		var (
			n                  int
			reception          sql.NullInt64
			pending, processed sql.NullString // NULL, and not the empty bytes that some drivers make of it and others do not
		)
		if err := scan(&n, &reception, &pending, &processed); err != nil {
			return err
		}
		if !reception.Valid && !processed.Valid {
			return errVanished
		}
		found[n] = rowOutcome{reception.Int64, pending.String, processed.Valid, processed.String}
		seen++
		return nil
	})
	if err == nil && seen != len(stored) {
		err = fmt.Errorf("the database told the outcome of %d messages, not %d", seen, len(stored))
	}
	return found, err
}

func differ(stored, received string) bool {
	return inbox.DecodeFingerprint(stored).Differs(inbox.DecodeFingerprint(received))
}

func mismatch(row inbox.Row, stored string) error {
	return &inbox.MismatchError{
		Consumer: row.Consumer,
		Identity: inbox.Identity{Producer: row.Producer, ID: row.ID},
		Stored:   inbox.DecodeFingerprint(stored),
		Received: inbox.DecodeFingerprint(row.Fingerprint),
	}
}

// newToken is never zero.
func newToken() int64 { return rand.Int64N(1<<63-1) + 1 }
