package retention

import (
	"context"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// walk is one way through the identities of a consumer, by the primary key, a window at a time.
type walk struct {
	*table
	condition  string // chooses identities
	hasPending bool   // there is a table of pending messages; identities that it has are not chosen
	window     window
	ended      bool
}

func (t *table) walk(consumer, condition string, hasPending bool, limit int) *walk {
	return &walk{table: t, condition: condition, hasPending: hasPending, window: window{consumer: consumer, limit: limit}}
}

// found is an identity that was chosen.
type found struct {
	inbox.Identity
	processed time.Time
}

// next returns the chosen identities of the next window, in their order, and how many it looked at. After the last window it has ended.
func (w *walk) next(ctx context.Context) (chosen []found, examined int, err error) {
	var last inbox.Identity
	err = w.read(ctx, func(ctx context.Context, tx wsql.Tx) (err error) {
		var topics []string
		chosen, examined = nil, 0
		if w.hasPending {
			if topics, err = w.pendingTopics(ctx, tx, w.window.consumer); err != nil {
				return err
			}
		}
		return sqltx.Each(ctx, tx, w.find(w.window, w.condition, topics), func(scan func(...any) error) error {
			var (
				kind, count  int
				micros       int64
				producer, id []byte
			)
			if err := scan(&kind, &producer, &id, &micros, &count); err != nil {
				return err
			}
			identity := inbox.Identity{Producer: string(producer), ID: string(id)}
			if examined = count; kind == kindLast {
				last = identity
				return nil
			}
			chosen = append(chosen, found{identity, time.UnixMicro(micros)})
			return nil
		})
	})
	if err != nil {
		return nil, 0, err
	}
	w.advance(last, examined)
	return chosen, examined, nil
}

// advance moves the window behind the last identity: to the rest of its producer, and when that is done, to the producers behind it.
func (w *walk) advance(last inbox.Identity, examined int) {
	full := examined == w.window.limit
	switch {
	case full:
		w.window.after, w.window.within = &last, true
	case w.window.within:
		w.window.within = false
	default:
		w.ended = true
	}
}
