package retention

import (
	"fmt"
	"strings"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

// statements builds SQL: text without parameters, as in package deferred.
type statements struct {
	Dialect
}

func (s statements) literal(value string) string { return string(s.AppendBytes(nil, value)) }

func query(format string, args ...any) wsql.Query {
	return wsql.Query{Query: fmt.Sprintf(format, args...)}
}

// olderThan is the condition that an identity was processed longer ago than age.
func (s statements) olderThan(age time.Duration) string {
	return fmt.Sprintf("%s < %s - %d", s.ProcessedAt(), s.Now(), age.Microseconds())
}

// between is the condition that an identity was processed from one time on and before another. A zero time is no bound.
func (s statements) between(from, to time.Time) string {
	condition := "1 = 1"
	if !from.IsZero() {
		condition += fmt.Sprintf(" AND %s >= %d", s.ProcessedAt(), from.UnixMicro())
	}
	if !to.IsZero() {
		condition += fmt.Sprintf(" AND %s < %d", s.ProcessedAt(), to.UnixMicro())
	}
	return condition
}

func (s statements) nextConsumer(last string) wsql.Query {
	return query("SELECT consumer FROM %s WHERE consumer > %s ORDER BY consumer LIMIT 1", s.Table(), s.literal(last))
}

// nextTopic jumps through the index of identities of the pending messages.
func (s statements) nextTopic(consumer string, last *string) wsql.Query {
	after := ""
	if last != nil {
		after = " AND topic > " + s.literal(*last)
	}
	return query("SELECT topic FROM %s WHERE consumer = %s%s ORDER BY consumer, topic LIMIT 1", s.QueueTable(deferred.Pending), s.literal(consumer), after)
}

// window is a range of a consumer's identities: those of one producer after an id, or those of the producers after one. No engine uses
// its index for both at once.
type window struct {
	consumer string
	after    *inbox.Identity // nil: from the first on
	within   bool            // the producer of after; else those behind it
	limit    int
}

func (w window) where(s statements) string {
	of := "a.consumer = " + s.literal(w.consumer)
	switch {
	case w.after == nil:
		return of
	case w.within:
		return of + " AND a.producer = " + s.literal(w.after.Producer) + " AND a.message_id > " + s.literal(w.after.ID)
	default:
		return of + " AND a.producer > " + s.literal(w.after.Producer)
	}
}

// Kinds of the rows that find returns.
const (
	kindFound = 1
	kindLast  = 2 // of the window, whether it is found or not
)

// find returns kind, producer, id, time of processing and the number of identities in the window: of those for which the condition holds and which no queue has, and of the last one.
func (s statements) find(w window, condition string, pendingTopics []string) wsql.Query {
	b := &strings.Builder{}
	fmt.Fprintf(b, "WITH w AS (SELECT a.producer, a.message_id, %s AS processed, CASE WHEN %s THEN 1 ELSE 0 END AS chosen FROM %s a WHERE %s ORDER BY a.producer, a.message_id LIMIT %d)",
		s.ProcessedAt(), condition, s.Table(), w.where(s), w.limit)
	fmt.Fprintf(b, " SELECT %d, w.producer, w.message_id, w.processed, (SELECT COUNT(*) FROM w) FROM w WHERE w.chosen = 1", kindFound)
	for _, topic := range pendingTopics {
		fmt.Fprintf(b, " AND NOT EXISTS (SELECT 1 FROM %s p WHERE p.consumer = %s AND p.topic = %s AND p.producer = w.producer AND p.message_id = w.message_id)",
			s.QueueTable(deferred.Pending), s.literal(w.consumer), s.literal(topic))
	}
	fmt.Fprintf(b, " UNION ALL SELECT * FROM (SELECT %d, w.producer, w.message_id, w.processed, (SELECT COUNT(*) FROM w) FROM w ORDER BY w.producer DESC, w.message_id DESC LIMIT 1) l", kindLast)
	return wsql.Query{Query: b.String()}
}

// delete removes identities of one producer, in the order of their ids, for which the condition still holds. The range says nothing new, but lets PostgreSQL read a part of the index instead of a small
// table.
func (s statements) delete(consumer string, identities []inbox.Identity, condition string) wsql.Query {
	first, last := identities[0], identities[len(identities)-1]
	return query("%s WHERE consumer = %s AND producer = %s AND message_id >= %s AND message_id <= %s AND message_id IN (%s) AND %s",
		s.DeleteByKey(), s.literal(consumer), s.literal(first.Producer), s.literal(first.ID), s.literal(last.ID), s.ids(identities), condition)
}

func (s statements) ids(identities []inbox.Identity) string {
	var b []byte
	for n, identity := range identities {
		if n > 0 {
			b = append(b, ", "...)
		}
		b = s.AppendBytes(b, identity.ID)
	}
	return string(b)
}

// identity returns fingerprint and time of processing of one identity.
func (s statements) identity(consumer string, identity inbox.Identity) wsql.Query {
	return query("SELECT fingerprint, %s FROM %s WHERE consumer = %s AND producer = %s AND message_id = %s",
		s.ProcessedAt(), s.Table(), s.literal(consumer), s.literal(identity.Producer), s.literal(identity.ID))
}

// pending returns the ids of those identities of one producer that pending messages of a topic have.
func (s statements) pending(consumer, topic string, identities ...inbox.Identity) wsql.Query {
	return query("SELECT message_id FROM %s WHERE consumer = %s AND topic = %s AND producer = %s AND message_id IN (%s)",
		s.QueueTable(deferred.Pending), s.literal(consumer), s.literal(topic), s.literal(identities[0].Producer), s.ids(identities))
}

// count counts the identities of a consumer for which the condition holds. It reads all of the consumer's.
func (s statements) count(consumer, condition string) wsql.Query {
	return query("SELECT COUNT(*) FROM %s WHERE consumer = %s AND %s", s.Table(), s.literal(consumer), condition)
}

func (s statements) plan(consumer string) wsql.Query {
	return query("%s SELECT consumer FROM %s WHERE consumer = %s", s.ExplainJSON(), s.Table(), s.literal(consumer))
}
