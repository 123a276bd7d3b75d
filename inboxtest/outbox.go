package inboxtest

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

// recorder is a Publisher that keeps what it is given and then fails, if it should, or passes it on.
type recorder struct {
	next message.Publisher // nil: nowhere
	err  error

	mu     sync.Mutex
	topics []string
	msgs   []*message.Message
}

func (r *recorder) Publish(topic string, msgs ...*message.Message) error {
	r.mu.Lock()
	for _, msg := range msgs {
		r.topics, r.msgs = append(r.topics, topic), append(r.msgs, msg)
	}
	r.mu.Unlock()
	if r.err != nil || r.next == nil {
		return r.err
	}
	return r.next.Publish(topic, msgs...)
}

func (r *recorder) Close() error { return nil }

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.msgs)
}

// failingOutbox is an outbox whose insert fails.
func failingOutbox(wsql.ContextExecutor) (message.Publisher, error) {
	return &recorder{err: errWanted}, nil
}

// outboxRow is a row of the outbox.
type outboxRow struct {
	uuid, payload, metadata string
}

// outboxRows reads the outbox in the order of the inserts. The first column of watermill-sql's tables is their offset.
func (f *fixture) outboxRows(t *testing.T) []outboxRow {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tx, err := f.instance.Admin.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	result, err := tx.QueryContext(ctx, "SELECT * FROM "+f.database.Outbox.MessagesTable(outgoing)+" ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = result.Close() }()
	var found []outboxRow
	for result.Next() {
		row, err := scanOutboxRow(result)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, row)
	}
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

func scanOutboxRow(result *sql.Rows) (outboxRow, error) {
	columns, err := result.Columns()
	if err != nil {
		return outboxRow{}, err
	}
	values, byName := make([]any, len(columns)), map[string]*sql.RawBytes{}
	for n, column := range columns {
		value := new(sql.RawBytes)
		values[n], byName[column] = value, value
	}
	if columns[0] != "offset" {
		return outboxRow{}, fmt.Errorf("the first column of the outbox is %q", columns[0])
	}
	if err := result.Scan(values...); err != nil {
		return outboxRow{}, err
	}
	return outboxRow{string(*byName["uuid"]), string(*byName["payload"]), string(*byName["metadata"])}, nil
}
