package deferred

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

const defaultTimeout = 5 * time.Second

// Store is what an operator sees of a queue and may change in it. It needs no running Receiver or Subscriber. It is safe for concurrent use.
type Store struct {
	queue *table
}

// NewStore makes a Store of one queue on the database that the Subscriber uses. A nil logger logs nothing.
func NewStore(db wsql.Beginner, schema inbox.Schema, queue Queue, logger watermill.LoggerAdapter) (*Store, error) {
	if queue != Pending && queue != Outgoing {
		return nil, fmt.Errorf("deferred: new store: queue is neither Pending nor Outgoing: %d", int(queue))
	}
	t, err := newTable(db, schema, queue, defaultTimeout, logger)
	if err != nil {
		return nil, fmt.Errorf("deferred: new store: %w", err)
	}
	return &Store{t}, nil
}

// WithTimeout returns a Store of the same queue whose transactions may take longer, or less long, than 5 s each. It is for operators who count or list
// long backlogs. A timeout that is not positive is the default.
func (s *Store) WithTimeout(timeout time.Duration) *Store {
	queue := *s.queue
	queue.timeout = defaultTimeout
	if timeout > 0 {
		queue.timeout = timeout
	}
	return &Store{queue.on(queue.runner.DB)}
}

// InitializeSchema creates the table of the queue and that of identities where they are missing, and verifies the first. It is safe to call again and
// by many instances at once.
func (s *Store) InitializeSchema(ctx context.Context) error { return s.queue.initialize(ctx) }

// Verify compares the live table of the queue with what the dialect's DDL creates, and says what differs in an *inbox.TableError. It changes nothing.
func (s *Store) Verify(ctx context.Context) error { return s.queue.verify(ctx) }

// Filter selects messages. The zero value selects the first hundred.
type Filter struct {
	Consumer string  // empty: all
	Topic    string  // empty: all
	States   []State // empty: all
	After    int64   // only messages with greater numbers, to go on where a list ended
	Limit    int     // 0: 100
}

// StoredMessage describes a message in a queue.
type StoredMessage struct {
	// Number is its place in the order of reception, and names it for Redrive, Discard and Load.
	Number int64

	Consumer    string
	Topic       string
	Identity    inbox.Identity
	UUID        string
	OrderingKey string
	State       State
	Attempts    int
	Received    time.Time
	Size        int // of payload and stored metadata in bytes

	// Due is when the message is available, its lease ends, or it died, depending on its state.
	Due time.Time

	// Reason is why it is dead, LastError what the last failed attempt said.
	Reason    string
	LastError string
}

// List returns messages in the order of their reception.
func (s *Store) List(ctx context.Context, filter Filter) ([]StoredMessage, error) {
	if filter.Limit <= 0 {
		filter.Limit = 100
	}
	var found []StoredMessage
	err := s.queue.read(ctx, func(ctx context.Context, tx wsql.Tx) error {
		found = nil
		return sqltx.Each(ctx, tx, s.queue.list(filter), func(scan func(...any) error) error {
			m, err := scanStored(scan)
			found = append(found, m)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("deferred: list: %w", err)
	}
	return found, nil
}

func scanStored(scan func(...any) error) (StoredMessage, error) {
	var (
		m                                                           StoredMessage
		consumer, topic, producer, id, uuid, key, reason, lastError []byte
		received, due                                               int64
	)
	err := scan(&m.Number, &consumer, &topic, &producer, &id, &uuid, &key, &m.State, &m.Attempts, &received, &due, &m.Size, &reason, &lastError)
	m.Consumer, m.Topic, m.OrderingKey, m.Reason, m.LastError = string(consumer), string(topic), string(key), string(reason), string(lastError)
	m.Identity = inbox.Identity{Producer: string(producer), ID: string(id)}
	m.UUID = uuidOf(m.Identity.ID, uuid)
	m.Received, m.Due = time.UnixMicro(received), time.UnixMicro(due)
	return m, err
}

// ErrNotFound says that no message has that number; most likely it is processed.
var ErrNotFound = errors.New("no such message in the queue")

// ErrStripped says that retention removed payload and metadata of a dead message. What List tells of it is all that is left.
var ErrStripped = errors.New("payload and metadata of the message were removed by retention")

// Load returns a message as it was received, without a claim on it. It fails with ErrNotFound or ErrStripped if there is nothing to return.
func (s *Store) Load(ctx context.Context, number int64) (*message.Message, error) {
	var msg *message.Message
	err := s.queue.read(ctx, func(ctx context.Context, tx wsql.Tx) error {
		var (
			id, uuid, metadata, payload []byte
			state                       State
		)
		found, err := sqltx.QueryRow(ctx, tx, s.queue.load(number), &id, &uuid, &metadata, &payload, &state)
		switch {
		case err != nil:
			return err
		case !found:
			return ErrNotFound
		case state == StateStripped:
			return ErrStripped
		}
		msg, err = messageOf(string(id), uuid, metadata, payload)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("deferred: load message %d: %w", number, err)
	}
	return msg, nil
}

// NotDeadError lists messages that could not be redriven or discarded. Nothing was changed.
type NotDeadError struct {
	// Numbers are of messages that are not dead: processed, removed or still alive.
	Numbers []int64

	// Stripped are of messages that are dead, but have no payload that could be handled again. Discard accepts them.
	Stripped []int64
}

// Error lists the numbers.
func (e *NotDeadError) Error() string {
	var parts []string
	if len(e.Numbers) > 0 {
		parts = append(parts, fmt.Sprintf("messages %v are not dead: processed, removed or still alive", e.Numbers))
	}
	if len(e.Stripped) > 0 {
		parts = append(parts, fmt.Sprintf("messages %v can only be discarded: retention removed their payloads", e.Stripped))
	}
	return strings.Join(parts, "; ")
}

// Redrive makes dead messages pending again: same identity, no attempts. If one of them is not dead, or stripped, nothing is changed and the error is a
// *NotDeadError; of two redrives of the same message at once, one gets it. After inbox.ErrCommitUncertain all or none of them are pending again: look with List before
// you try again, because a message may have been processed, or have died again, meanwhile.
func (s *Store) Redrive(ctx context.Context, numbers ...int64) error {
	if len(numbers) == 0 {
		return nil
	}
	err := s.queue.writeOnce(ctx, func(ctx context.Context, tx wsql.Tx) error {
		dead, err := s.dead(ctx, tx, numbers)
		if err != nil {
			return err
		}
		stripped := &NotDeadError{}
		for _, m := range dead {
			if m.state == StateStripped {
				stripped.Stripped = append(stripped.Stripped, m.seq)
			}
		}
		if len(stripped.Stripped) > 0 {
			return stripped
		}
		return run(ctx, tx, s.queue.redrive(numbers))
	})
	if err != nil {
		return fmt.Errorf("deferred: redrive: %w", err)
	}
	return nil
}

// Discard removes dead messages for good, stripped ones too. Their identities are not recorded, so a redelivery by the broker is a new message. If one of
// them is not dead, nothing is removed and the error is a *NotDeadError. After inbox.ErrCommitUncertain all or none of them are removed: look with List.
func (s *Store) Discard(ctx context.Context, numbers ...int64) error {
	if len(numbers) == 0 {
		return nil
	}
	err := s.queue.writeOnce(ctx, func(ctx context.Context, tx wsql.Tx) error {
		dead, err := s.dead(ctx, tx, numbers)
		if err != nil {
			return err
		}
		if err := run(ctx, tx, s.queue.discard(numbers)); err != nil {
			return err
		}
		for _, m := range dead {
			if m.orderingKey == "" {
				continue
			}
			if err := s.queue.promoteFirst(ctx, tx, m.consumer, m.topic, m.orderingKey, false); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("deferred: discard: %w", err)
	}
	return nil
}

// Strip removes payload and metadata of up to limit messages that died longer ago than age, by the database's clock, and returns of how many. Identity, reason and
// last error stay, so the message still holds its ordering key and still recognises redeliveries, but only Discard is left for it.
func (s *Store) Strip(ctx context.Context, age time.Duration, limit int) (stripped int, err error) {
	var numbers []int64
	err = s.queue.read(ctx, func(ctx context.Context, tx wsql.Tx) (err error) {
		numbers, err = readNumbers(ctx, tx, s.queue.listLongDead(age, limit))
		return err
	})
	if err == nil && len(numbers) > 0 {
		err = s.queue.repeat(ctx, func(ctx context.Context, tx wsql.Tx) error {
			affected, err := sqltx.Exec(ctx, tx, s.queue.strip(numbers, age))
			stripped = int(affected)
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("deferred: strip: %w", err)
	}
	return stripped, nil
}

// CountStrip returns of how many messages Strip without a limit would remove the payload.
func (s *Store) CountStrip(ctx context.Context, age time.Duration) (n int64, err error) {
	err = s.queue.read(ctx, func(ctx context.Context, tx wsql.Tx) error {
		_, err := sqltx.QueryRow(ctx, tx, s.queue.countLongDead(age), &n)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("deferred: count long dead: %w", err)
	}
	return n, nil
}

// deadMessage is what lockDead returns.
type deadMessage struct {
	seq                          int64
	state                        State
	consumer, topic, orderingKey string
}

// dead locks messages and makes sure that all of them are dead, be it stripped or not.
func (s *Store) dead(ctx context.Context, tx wsql.Tx, numbers []int64) ([]deadMessage, error) {
	if err := run(ctx, tx, s.queue.ClaimFirst(s.queue.queue)); err != nil {
		return nil, err
	}
	var dead []deadMessage
	missing := map[int64]bool{}
	for _, number := range numbers {
		missing[number] = true
	}
	err := sqltx.Each(ctx, tx, s.queue.lockDead(numbers), func(scan func(...any) error) error {
		var (
			m                    deadMessage
			consumer, topic, key []byte
		)
		err := scan(&m.seq, &m.state, &consumer, &topic, &key)
		m.consumer, m.topic, m.orderingKey = string(consumer), string(topic), string(key)
		dead = append(dead, m)
		delete(missing, m.seq)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		notDead := &NotDeadError{}
		for _, number := range numbers {
			if missing[number] {
				notDead.Numbers = append(notDead.Numbers, number)
			}
		}
		return nil, notDead
	}
	return dead, nil
}
