package deferred

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// Count is how many messages of one consumer and topic are in each state, whether anybody runs that consumer or not.
type Count struct {
	Consumer string
	Topic    string

	Pending, Suspect, Claimed, Waiting, Dead, Stripped int64

	// Oldest is the age of the oldest message that is not dead, counted from its reception; zero if there is none. It grows when a consumer does not
	// keep up, or does not run, and also while one message fails and fails again.
	Oldest time.Duration

	// Overdue is for how long nobody has attended to a message whose time has come: one that is available and not claimed, or whose claim ended. Zero if there is
	// none. It is the number to watch: a delay, a backoff and a long handler do not make it grow.
	Overdue time.Duration
}

// Count returns the counts of all consumers and topics that have messages, by the database's clock. It reads an index, but all of it.
func (s *Store) Count(ctx context.Context) ([]Count, error) {
	var counts []Count
	err := s.queue.read(ctx, func(ctx context.Context, tx wsql.Tx) error {
		counts = nil
		var last *Count
		return sqltx.Each(ctx, tx, s.queue.counts(), func(scan func(...any) error) error {
			var (
				consumer, topic []byte
				state           State
				n, age, overdue int64
			)
			if err := scan(&consumer, &topic, &state, &n, &age, &overdue); err != nil {
				return err
			}
			if last == nil || last.Consumer != string(consumer) || last.Topic != string(topic) {
				counts = append(counts, Count{Consumer: string(consumer), Topic: string(topic)})
				last = &counts[len(counts)-1]
			}
			last.add(state, n, age, overdue)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("deferred: count: %w", err)
	}
	return counts, nil
}

// add takes times in microseconds.
func (c *Count) add(state State, n, age, overdue int64) {
	switch state {
	case StatePending:
		c.Pending = n
	case StateSuspect:
		c.Suspect = n
	case StateClaimed:
		c.Claimed = n
	case StateWaiting:
		c.Waiting = n
	case StateDead:
		c.Dead = n
	case StateStripped:
		c.Stripped = n
	}
	if state < StateDead {
		c.Oldest = max(c.Oldest, time.Duration(age)*time.Microsecond)
		c.Overdue = max(c.Overdue, time.Duration(overdue)*time.Microsecond)
	}
}

// MaxCountGroups bounds the work of Store.CountUpTo: consumers, topics of a consumer, and sets of messages with the same consumer, topic and state.
const MaxCountGroups = 500

// CountUpTo is Count at a bounded cost, however many messages wait: no more than limit messages of a consumer, topic and state are read, in an index, those first
// whose time comes first. A number that is equal to limit means that many or more, and Oldest is then that of the messages which were read. Overdue is
// always exact. Complete is false if there are more than MaxCountGroups sets to count; the others are missing then.
//
// It takes a few short statements in one transaction: two, and one more for each consumer and topic.
func (s *Store) CountUpTo(ctx context.Context, limit int) (counts []Count, complete bool, err error) {
	if limit < 1 {
		return nil, false, fmt.Errorf("deferred: count up to a limit: the limit is %d", limit)
	}
	err = s.queue.read(ctx, func(ctx context.Context, tx wsql.Tx) error {
		counts = nil
		if err := s.avoidSort(ctx, tx); err != nil {
			return err
		}
		groups, err := s.groups(ctx, tx)
		if err != nil {
			return err
		}
		if complete = len(groups) <= MaxCountGroups; !complete {
			groups = groups[:MaxCountGroups]
		}
		byName := map[[2]string]*Count{}
		for batch := range slices.Chunk(groups, countBatch) {
			if err := s.countGroups(ctx, tx, byName, batch, limit); err != nil {
				return err
			}
		}
		for _, count := range byName {
			counts = append(counts, *count)
		}
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("deferred: count up to %d: %w", limit, err)
	}
	slices.SortFunc(counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.Topic, b.Topic))
	})
	return counts, complete, nil
}

func (s *Store) avoidSort(ctx context.Context, tx wsql.Tx) error {
	avoider, ok := s.queue.Dialect.(SortAvoider)
	if !ok {
		return nil
	}
	return run(ctx, tx, avoider.AvoidSort())
}

// countBatch is how many groups one statement counts. SQLite allows 500 parts of a UNION, and a planner's time grows with them.
const countBatch = 50

// group is a set of messages that are neighbours in the index.
type group struct {
	consumer, topic string
	state           State
}

// groups finds up to MaxCountGroups + 1 groups, or a few more: one of each state with each statement.
func (s *Store) groups(ctx context.Context, tx wsql.Tx) (groups []group, err error) {
	ends := []group{{state: StatePending}, {state: StateSuspect}, {state: StateClaimed}, {state: StateWaiting}, {state: StateDead}, {state: StateStripped}}
	for len(ends) > 0 && len(groups) <= MaxCountGroups {
		if ends, err = s.next(ctx, tx, ends); err != nil {
			return nil, err
		}
		groups = append(groups, ends...)
	}
	return groups, nil
}

// next returns the next group in the state of each, if there is one.
func (s *Store) next(ctx context.Context, tx wsql.Tx, groups []group) (next []group, err error) {
	found := map[int]group{}
	err = sqltx.Each(ctx, tx, s.queue.leap(groups), func(scan func(...any) error) error {
		var (
			place, otherConsumer int
			consumer, topic      []byte
		)
		if err := scan(&place, &otherConsumer, &consumer, &topic); err != nil {
			return err
		}
		if _, ok := found[place]; !ok || otherConsumer == 0 {
			found[place] = group{string(consumer), string(topic), groups[place].state}
		}
		return nil
	})
	for place := range groups {
		if g, ok := found[place]; ok {
			next = append(next, g)
		}
	}
	return next, err
}

// countGroups adds to counts.
func (s *Store) countGroups(ctx context.Context, tx wsql.Tx, counts map[[2]string]*Count, groups []group, limit int) error {
	return sqltx.Each(ctx, tx, s.queue.countUpTo(groups, limit), func(scan func(...any) error) error {
		var (
			place           int
			n, age, overdue int64
		)
		if err := scan(&place, &n, &age, &overdue); err != nil {
			return err
		}
		g := groups[place]
		name := [2]string{g.consumer, g.topic}
		if counts[name] == nil {
			counts[name] = &Count{Consumer: g.consumer, Topic: g.topic}
		}
		counts[name].add(g.state, n, age, overdue)
		return nil
	})
}
