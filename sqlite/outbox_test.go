package sqlite_test

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/sqlite"
)

const (
	outboxTopic   = "orders.v1-placed"
	outboxTimeout = 30 * time.Second
)

// outboxEngine is a driver with its way to write file, busy timeout, journal mode and lock of BEGIN into a DSN.
type outboxEngine struct{ name, driver, dsn string }

// outboxEngines are all drivers of this build: outbox_cgo_test.go adds the one that needs cgo.
var outboxEngines = []outboxEngine{{
	name:   "modernc",
	driver: "sqlite",
	dsn:    "file:%s?_pragma=busy_timeout(%d)&_pragma=journal_mode(%s)&_txlock=%s",
}}

// outboxFile is one database file of one engine.
type outboxFile struct {
	engine  outboxEngine
	path    string
	journal string
}

func onEveryEngine(t *testing.T, test func(t *testing.T, file outboxFile)) {
	for _, engine := range outboxEngines {
		t.Run(engine.name, func(t *testing.T) {
			t.Parallel()
			test(t, outboxFile{engine, filepath.Join(t.TempDir(), "outbox.db"), "WAL"})
		})
	}
}

func (f outboxFile) open(t *testing.T, txlock string, busy time.Duration) *stdsql.DB {
	dsn := fmt.Sprintf(f.engine.dsn, f.path, busy.Milliseconds(), f.journal, txlock)
	db, err := stdsql.Open(f.engine.driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })

	return db
}

// openOutbox opens the file as the documentation tells and creates the tables of the topic.
func (f outboxFile) openOutbox(t *testing.T) *stdsql.DB {
	db := f.open(t, "immediate", 5*time.Second)
	require.NoError(t, newOutboxSubscriber(t, db, outboxSubscription{}).SubscribeInitialize(outboxTopic))

	return db
}

type outboxSubscription struct {
	group   string
	batch   int
	offsets wsql.OffsetsAdapter
	logger  watermill.LoggerAdapter
}

func newOutboxSubscriber(t *testing.T, db *stdsql.DB, s outboxSubscription) *wsql.Subscriber {
	if s.offsets == nil {
		s.offsets = sqlite.OutboxOffsetsAdapter{}
	}
	sub, err := wsql.NewSubscriber(wsql.BeginnerFromStdSQL(db), wsql.SubscriberConfig{
		ConsumerGroup:  s.group,
		PollInterval:   5 * time.Millisecond,
		ResendInterval: 5 * time.Millisecond,
		RetryInterval:  5 * time.Millisecond,
		SchemaAdapter:  sqlite.OutboxSchema{SubscribeBatchSize: s.batch},
		OffsetsAdapter: s.offsets,
	}, s.logger)
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Close() })

	return sub
}

func subscribe(t *testing.T, sub message.Subscriber) <-chan *message.Message {
	messages, err := sub.Subscribe(context.Background(), outboxTopic)
	require.NoError(t, err)

	return messages
}

func newOutboxPublisher(t *testing.T, db wsql.ContextExecutor) message.Publisher {
	pub, err := wsql.NewPublisher(db, wsql.PublisherConfig{SchemaAdapter: sqlite.OutboxSchema{}}, nil)
	require.NoError(t, err)

	return pub
}

func publish(t *testing.T, db *stdsql.DB, msgs ...*message.Message) {
	require.NoError(t, newOutboxPublisher(t, wsql.BeginnerFromStdSQL(db)).Publish(outboxTopic, msgs...))
}

// publishNumbered publishes messages with the UUIDs first to last, in one call.
func publishNumbered(t *testing.T, db *stdsql.DB, first, last int) {
	var msgs []*message.Message
	for i := first; i <= last; i++ {
		msgs = append(msgs, message.NewMessage(fmt.Sprint(i), nil))
	}
	publish(t, db, msgs...)
}

func receive(t *testing.T, messages <-chan *message.Message) *message.Message {
	select {
	case msg, open := <-messages:
		require.True(t, open, "the subscription ended")
		return msg
	case <-time.After(outboxTimeout):
		require.FailNow(t, "no message")
		return nil
	}
}

// ack returns once the subscriber has seen the ack, which then outlives its Close: it ends the context of the message.
func ack(msg *message.Message) {
	msg.Ack()
	<-msg.Context().Done()
}

// receiveNumbered acks messages and requires the UUIDs first to last, in this order.
func receiveNumbered(t *testing.T, messages <-chan *message.Message, first, last int) {
	for i := first; i <= last; i++ {
		msg := receive(t, messages)
		require.Equal(t, fmt.Sprint(i), msg.UUID)
		ack(msg)
	}
}

func ackedOffset(t *testing.T, db *stdsql.DB, group string) (offset int) {
	query := `SELECT offset_acked FROM "watermill_offsets_` + outboxTopic + `" WHERE consumer_group = ?`
	require.NoError(t, db.QueryRow(query, group).Scan(&offset))

	return offset
}

func TestOutboxMessagesShareTheFateOfTheirTransaction(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.openOutbox(t)
		publishInTx := func(uuid string) *stdsql.Tx {
			tx, err := db.Begin()
			require.NoError(t, err)
			pub := newOutboxPublisher(t, wsql.TxFromStdSQL(tx))
			require.NoError(t, pub.Publish(outboxTopic, message.NewMessage(uuid, nil)))
			return tx
		}

		require.NoError(t, publishInTx("1").Commit())
		require.NoError(t, publishInTx("rolled back").Rollback())
		require.NoError(t, publishInTx("2").Commit())

		receiveNumbered(t, subscribe(t, newOutboxSubscriber(t, db, outboxSubscription{})), 1, 2)
	})
}

func TestOutboxIsReadInOrderOverManyBatches(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.openOutbox(t)
		publishNumbered(t, db, 1, 250)
		sub := newOutboxSubscriber(t, db, outboxSubscription{group: "relay"})
		messages := subscribe(t, sub)
		require.Zero(t, ackedOffset(t, db, "relay"), "Subscribe registers the group")

		receiveNumbered(t, messages, 1, 250)

		require.NoError(t, sub.Close())
		require.Equal(t, 250, ackedOffset(t, db, "relay"))
	})
}

func TestOutboxNackRedelivers(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.openOutbox(t)
		publishNumbered(t, db, 1, 3)
		messages := subscribe(t, newOutboxSubscriber(t, db, outboxSubscription{}))

		receiveNumbered(t, messages, 1, 1)
		for range 3 {
			msg := receive(t, messages)
			require.Equal(t, "2", msg.UUID)
			msg.Nack()
		}

		receiveNumbered(t, messages, 2, 3)
	})
}

func TestOutboxConsumerGroupsAreIndependent(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.openOutbox(t)
		publishNumbered(t, db, 1, 5)
		one := newOutboxSubscriber(t, db, outboxSubscription{group: "one"})
		two := newOutboxSubscriber(t, db, outboxSubscription{group: "two"})

		receiveNumbered(t, subscribe(t, one), 1, 5)
		require.NoError(t, one.Close())
		receiveNumbered(t, subscribe(t, two), 1, 3)
		require.NoError(t, two.Close())

		require.Equal(t, 5, ackedOffset(t, db, "one"))
		require.Equal(t, 3, ackedOffset(t, db, "two"))
	})
}

func TestOutboxRestartContinuesAfterTheLastAck(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.openOutbox(t)
		publishNumbered(t, db, 1, 5)

		first := newOutboxSubscriber(t, db, outboxSubscription{})
		messages := subscribe(t, first)
		receiveNumbered(t, messages, 1, 2)
		require.Equal(t, "3", receive(t, messages).UUID)
		require.NoError(t, first.Close())

		restarted := file.open(t, "immediate", 5*time.Second)
		receiveNumbered(t, subscribe(t, newOutboxSubscriber(t, restarted, outboxSubscription{})), 3, 5)
	})
}

func TestOutboxReturnsMessagesAsPublished(t *testing.T) {
	t.Parallel()

	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	published := map[string]*message.Message{
		"every byte":     message.NewMessage("1", everyByte),
		"1 MiB":          message.NewMessage("2", []byte(strings.Repeat("\x00\xffab", 1<<18))),
		"nil payload":    message.NewMessage("3", nil),
		"empty payload":  message.NewMessage("4", []byte{}),
		"long UUID":      message.NewMessage(strings.Repeat("ü", 5000), nil),
		"empty UUID":     message.NewMessage("", nil),
		"NUL in UUID":    message.NewMessage("a\x00b ", nil),
		"numeric UUID":   message.NewMessage("007", nil),
		"nil metadata":   {UUID: "8", Payload: []byte("8")},
		"empty metadata": message.NewMessage("9", nil),
		"metadata":       message.NewMessage("10", nil),
	}
	published["metadata"].Metadata = message.Metadata{"": "", `k"<`: "a\n\x00'é\U0001F600 ", "null": "null"}

	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.openOutbox(t)
		messages := subscribe(t, newOutboxSubscriber(t, db, outboxSubscription{}))
		for name, want := range published {
			publish(t, db, want)
			got := receive(t, messages)
			require.Equal(t, want.UUID, got.UUID, name)
			require.Equal(t, string(want.Payload), string(got.Payload), name)
			require.NotNil(t, got.Metadata, name)
			require.Len(t, got.Metadata, len(want.Metadata), name)
			for key, value := range want.Metadata {
				require.Equal(t, value, got.Metadata[key], name)
			}
			ack(got)
		}
	})
}

func TestOutboxMetadataCanBeQueriedAsJSON(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.openOutbox(t)
		msg := message.NewMessage("1", nil)
		msg.Metadata.Set("tenant", "acme")
		publish(t, db, msg)

		var storage, tenant string
		query := `SELECT typeof(metadata), json_extract(metadata, '$.tenant') FROM "watermill_` + outboxTopic + `"`
		require.NoError(t, db.QueryRow(query).Scan(&storage, &tenant))
		require.Equal(t, "text", storage)
		require.Equal(t, "acme", tenant)
	})
}

// A subscriber that fell behind another of its group must not move the offset back. It may repeat what the other has
// already acked: here message 1.
func TestOutboxSlowSubscriberDoesNotMoveTheOffsetBack(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.openOutbox(t)
		publishNumbered(t, db, 1, 10)
		slow := subscribe(t, newOutboxSubscriber(t, db, outboxSubscription{group: "relay", batch: 1}))
		held := receive(t, slow)
		require.Equal(t, "1", held.UUID)

		fast := newOutboxSubscriber(t, db, outboxSubscription{group: "relay"})
		receiveNumbered(t, subscribe(t, fast), 1, 10)
		require.NoError(t, fast.Close())
		require.Equal(t, 10, ackedOffset(t, db, "relay"))

		ack(held)
		publishNumbered(t, db, 11, 11)
		receiveNumbered(t, slow, 11, 11)
	})
}

// Reading "offset > last" skips nothing only if no offset becomes visible after a higher one. The proof is that a
// second transaction cannot be given an offset while the first, with a lower one, is open.
func TestOutboxOffsetsBecomeVisibleInTheOrderOfCommits(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.openOutbox(t)
		deferred := file.open(t, "deferred", 0)

		first, err := deferred.Begin()
		require.NoError(t, err)
		defer func() { _ = first.Rollback() }()
		one := message.NewMessage("1", nil)
		require.NoError(t, newOutboxPublisher(t, wsql.TxFromStdSQL(first)).Publish(outboxTopic, one))

		second, err := deferred.Begin()
		require.NoError(t, err)
		defer func() { _ = second.Rollback() }()
		two := message.NewMessage("2", nil)
		outbox := newOutboxPublisher(t, wsql.TxFromStdSQL(second))
		require.ErrorContains(t, outbox.Publish(outboxTopic, two), "locked")
		require.Empty(t, storedOffsets(t, db), "nobody sees an uncommitted offset")

		require.NoError(t, first.Commit())
		require.NoError(t, outbox.Publish(outboxTopic, two))
		require.NoError(t, second.Commit())
		require.Equal(t, []int64{1, 2}, storedOffsets(t, db))
	})
}

func storedOffsets(t *testing.T, db *stdsql.DB) (offsets []int64) {
	rows, err := db.Query(`SELECT "offset" FROM "watermill_` + outboxTopic + `" ORDER BY "offset"`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var offset int64
		require.NoError(t, rows.Scan(&offset))
		offsets = append(offsets, offset)
	}
	require.NoError(t, rows.Err())

	return offsets
}

// The same property under load: transactions overlap, some of them roll back, and the relay reads all the time.
func TestOutboxSkipsNothingWhileTransactionsOverlap(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		const writers, transactions = 4, 60
		db := file.openOutbox(t)
		messages := subscribe(t, newOutboxSubscriber(t, db, outboxSubscription{batch: 7}))

		failed := make(chan error, writers)
		for writer := range writers {
			go func() { failed <- publishOverlapping(db, writer, transactions) }()
		}

		next := make([]int, writers)
		for range writers * transactions { // half of the transactions commit two each
			msg := receive(t, messages)
			var writer, number int
			_, err := fmt.Sscanf(msg.UUID, "%d/%d", &writer, &number)
			require.NoError(t, err)
			require.Equal(t, next[writer], number, "writer %d", writer)
			next[writer]++
			ack(msg)
		}
		for range writers {
			require.NoError(t, <-failed)
		}
	})
}

// publishOverlapping commits every other of its transactions, each with two messages numbered without gaps.
func publishOverlapping(db *stdsql.DB, writer, transactions int) error {
	number := 0
	for i := range transactions {
		commit := i%2 == 1
		if err := publishTwo(db, writer, number, commit); err != nil {
			return err
		}
		if commit {
			number += 2
		}
	}

	return nil
}

func publishTwo(db *stdsql.DB, writer, number int, commit bool) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()

	pub, err := wsql.NewPublisher(
		wsql.TxFromStdSQL(tx), wsql.PublisherConfig{SchemaAdapter: sqlite.OutboxSchema{}}, nil)
	if err != nil {
		return err
	}
	for i := range 2 {
		uuid := fmt.Sprintf("%d/%d", writer, number+i)
		if err := pub.Publish(outboxTopic, message.NewMessage(uuid, nil)); err != nil {
			return err
		}
	}
	if !commit {
		return nil
	}

	return tx.Commit()
}

// While a message is handled, the relay must hold neither the write lock nor a snapshot. With a snapshot, the write
// in between would make the ack fail, and the batch come again, for ever if somebody always writes.
func TestOutboxRelayHoldsNoLockWhileAMessageIsHandled(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		for _, txlock := range []string{"immediate", "deferred"} {
			t.Run(txlock, func(t *testing.T) {
				file.path += txlock
				file.openOutbox(t)
				relay := file.open(t, txlock, 5*time.Second)
				impatient := file.open(t, "immediate", 0)
				publishNumbered(t, impatient, 1, 2)
				sub := newOutboxSubscriber(t, relay, outboxSubscription{group: "relay", batch: 2})
				messages := subscribe(t, sub)

				for i := 1; i <= 2; i++ {
					msg := receive(t, messages)
					require.Equal(t, fmt.Sprint(i), msg.UUID)
					publishNumbered(t, impatient, i+2, i+2)
					var busy, frames, copied int
					checkpoint := impatient.QueryRow(`PRAGMA wal_checkpoint(TRUNCATE)`)
					require.NoError(t, checkpoint.Scan(&busy, &frames, &copied))
					require.Zero(t, busy, "a reader holds back the checkpoint")
					ack(msg)
				}
				receiveNumbered(t, messages, 3, 4)
				require.NoError(t, sub.Close())
				require.Equal(t, 4, ackedOffset(t, relay, "relay"))
			})
		}
	})
}

// relayLog keeps the errors that the relay reports.
type relayLog struct {
	watermill.NopLogger
	mu   sync.Mutex
	errs []error
}

func (l *relayLog) Error(text string, err error, _ watermill.LogFields) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errs = append(l.errs, fmt.Errorf("%s: %w", text, err))
}

func (l *relayLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }

func (l *relayLog) reported() error {
	l.mu.Lock()
	defer l.mu.Unlock()

	return errors.Join(l.errs...)
}

// relayTarget stands for the broker. It tells when it has seen enough different messages.
type relayTarget struct {
	mu     sync.Mutex
	seen   map[string]int
	enough int
	done   chan struct{}
}

func (b *relayTarget) Publish(_ string, msgs ...*message.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, msg := range msgs {
		b.seen[msg.UUID]++
		if b.seen[msg.UUID] == 1 && len(b.seen) == b.enough {
			close(b.done)
		}
	}

	return nil
}

func (b *relayTarget) Close() error { return nil }

func (b *relayTarget) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()

	return len(b.seen)
}

func TestOutboxForwarderRelaysWhileInboxesWrite(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		for _, relay := range []struct{ journal, txlock string }{
			{"WAL", "immediate"}, {"WAL", "deferred"}, {"DELETE", "immediate"},
		} {
			t.Run(relay.journal+" "+relay.txlock, func(t *testing.T) {
				file.path, file.journal = file.path+relay.journal+relay.txlock, relay.journal
				db := file.openOutbox(t)
				_, err := db.Exec(`CREATE TABLE marks (id TEXT NOT NULL PRIMARY KEY)`)
				require.NoError(t, err)

				testForwarder(t, db, file.open(t, relay.txlock, 5*time.Second))
			})
		}
	})
}

// testForwarder lets writers go on until the relay has come through many batches, so a relay that only gets on once
// the writers pause does not pass.
func testForwarder(t *testing.T, db, relayDB *stdsql.DB) {
	const writers, batches, batch = 4, 20, 10
	log := &relayLog{}
	target := &relayTarget{seen: map[string]int{}, enough: batches * batch, done: make(chan struct{})}
	sub := newOutboxSubscriber(t, relayDB, outboxSubscription{group: "relay", batch: batch, logger: log})
	fwd, err := forwarder.NewForwarder(sub, target, log, forwarder.Config{ForwarderTopic: outboxTopic})
	require.NoError(t, err)
	stopped := make(chan error, 1)
	go func() { stopped <- fwd.Run(context.Background()) }()

	stop := make(chan struct{})
	results := make(chan writerResult, writers)
	for writer := range writers {
		go func() { results <- writeLikeAnInbox(db, writer, stop) }()
	}
	relayed := waitFor(target.done)
	offset := ackedOffset(t, db, "relay")
	close(stop)
	written := 0
	for range writers {
		result := <-results
		require.NoError(t, result.err, "a writer")
		written += result.transactions
	}
	require.True(t, relayed, "no progress while others write: %d of %d", target.count(), written)
	require.Positive(t, offset)
	require.Eventually(t, func() bool { return ackedOffset(t, db, "relay") == written }, outboxTimeout, 5*time.Millisecond)
	require.NoError(t, log.reported())

	require.NoError(t, fwd.Close())
	require.NoError(t, <-stopped)
	require.Len(t, target.seen, written)
	for uuid, times := range target.seen {
		require.Equal(t, 1, times, "no ack failed, so nothing was repeated: %s", uuid)
	}
}

func waitFor(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(outboxTimeout):
		return false
	}
}

type writerResult struct {
	transactions int
	err          error
}

// writeLikeAnInbox marks a message and publishes another in one transaction, again and again. The pause is the part of
// a handler's time outside of transactions. Writers without any pause starve each other for seconds, with or without
// a relay.
func writeLikeAnInbox(db *stdsql.DB, writer int, stop <-chan struct{}) (result writerResult) {
	for {
		select {
		case <-stop:
			return result
		case <-time.After(2 * time.Millisecond):
		}
		id := fmt.Sprintf("%d/%d", writer, result.transactions)
		if result.err = markAndPublish(db, id); result.err != nil {
			return result
		}
		result.transactions++
	}
}

func markAndPublish(db *stdsql.DB, id string) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()

	if _, err := tx.Exec(`INSERT INTO marks (id) VALUES (?)`, id); err != nil {
		return err
	}
	pub, err := wsql.NewPublisher(
		wsql.TxFromStdSQL(tx), wsql.PublisherConfig{SchemaAdapter: sqlite.OutboxSchema{}}, nil)
	if err != nil {
		return err
	}
	enveloping := forwarder.NewPublisher(pub, forwarder.PublisherConfig{ForwarderTopic: outboxTopic})
	if err := enveloping.Publish("destination", message.NewMessage(id, []byte("{}"))); err != nil {
		return err
	}

	return tx.Commit()
}

func TestOutboxOffsetsAreNotUsedAgain(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.openOutbox(t)
		publishNumbered(t, db, 1, 3)
		sub := newOutboxSubscriber(t, db, outboxSubscription{})
		receiveNumbered(t, subscribe(t, sub), 1, 3)
		require.NoError(t, sub.Close())

		_, err := db.Exec(`DELETE FROM "watermill_` + outboxTopic + `"
			WHERE "offset" <= (SELECT MIN(offset_acked) FROM "watermill_offsets_` + outboxTopic + `")`)
		require.NoError(t, err)
		require.Empty(t, storedOffsets(t, db))
		publishNumbered(t, db, 4, 4)

		receiveNumbered(t, subscribe(t, newOutboxSubscriber(t, db, outboxSubscription{})), 4, 4)
	})
}

func TestOutboxNumberOfMessagesInOnePublish(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.openOutbox(t)
		pub := newOutboxPublisher(t, wsql.BeginnerFromStdSQL(db))
		require.NoError(t, pub.Publish(outboxTopic))
		require.Empty(t, storedOffsets(t, db))

		// To prepare the statement is enough: SQLite counts its variables then.
		msgs := make([]*message.Message, 10922)
		for i := range msgs {
			msgs[i] = message.NewMessage(fmt.Sprint(i), nil)
		}
		insert, err := sqlite.OutboxSchema{}.InsertQuery(wsql.InsertQueryParams{Topic: outboxTopic, Msgs: msgs})
		require.NoError(t, err)
		prepared, err := db.Prepare(insert.Query)
		require.NoError(t, err)
		defer func() { require.NoError(t, prepared.Close()) }()

		err = pub.Publish(outboxTopic, append(msgs, message.NewMessage("one more", nil))...)
		require.ErrorContains(t, err, "10923 messages in one Publish, at most 10922 fit")
	})
}

func TestOutboxTableNamesAreQuoted(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.open(t, "immediate", 5*time.Second)
		messagesTable, offsetsTable := `out"box; DROP TABLE x.y--`, "select `offset`"
		schema := sqlite.OutboxSchema{GenerateMessagesTableName: func(string) string { return messagesTable }}
		offsets := sqlite.OutboxOffsetsAdapter{
			GenerateMessagesOffsetsTableName: func(string) string { return offsetsTable },
		}
		beginner := wsql.BeginnerFromStdSQL(db)
		sub, err := wsql.NewSubscriber(beginner, wsql.SubscriberConfig{
			SchemaAdapter: schema, OffsetsAdapter: offsets, InitializeSchema: true, PollInterval: 5 * time.Millisecond,
		}, nil)
		require.NoError(t, err)
		messages := subscribe(t, sub)
		pub, err := wsql.NewPublisher(beginner, wsql.PublisherConfig{
			SchemaAdapter: schema, AutoInitializeSchema: true,
		}, nil)
		require.NoError(t, err)

		require.NoError(t, pub.Publish(outboxTopic, message.NewMessage("1", nil)))
		receiveNumbered(t, messages, 1, 1)
		require.NoError(t, sub.Close())

		var found int
		query := `SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table' AND name IN (?, ?)`
		require.NoError(t, db.QueryRow(query, messagesTable, offsetsTable).Scan(&found))
		require.Equal(t, 2, found)
	})
}

// The relay asks again at every poll interval, so its question must not become slower as the table grows.
func TestOutboxSelectIsASearchByKey(t *testing.T) {
	t.Parallel()
	onEveryEngine(t, func(t *testing.T, file outboxFile) {
		db := file.openOutbox(t)
		query, err := sqlite.OutboxSchema{}.SelectQuery(wsql.SelectQueryParams{
			Topic: outboxTopic, OffsetsAdapter: sqlite.OutboxOffsetsAdapter{},
		})
		require.NoError(t, err)

		rows, err := db.Query(`EXPLAIN QUERY PLAN `+query.Query, query.Args...)
		require.NoError(t, err)
		defer rows.Close()
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var detail string
			require.NoError(t, rows.Scan(&id, &parent, &unused, &detail))
			plan = append(plan, detail)
		}
		require.NoError(t, rows.Err())
		require.Contains(t, plan, "SEARCH watermill_"+outboxTopic+" USING INTEGER PRIMARY KEY (rowid>?)")
		require.NotContains(t, strings.Join(plan, "\n"), "TEMP B-TREE")
		require.NotContains(t, strings.ReplaceAll(strings.Join(plan, "\n"), "SCAN CONSTANT ROW", ""), "SCAN")
	})
}

func TestOutboxSchemaRefusesMetadataItDidNotWrite(t *testing.T) {
	t.Parallel()
	db := outboxFile{outboxEngines[0], filepath.Join(t.TempDir(), "outbox.db"), "WAL"}.openOutbox(t)
	log := &relayLog{}
	_, err := db.Exec(`INSERT INTO "watermill_` + outboxTopic + `" (uuid, metadata) VALUES ('1', 'no JSON')`)
	require.NoError(t, err)

	subscribe(t, newOutboxSubscriber(t, db, outboxSubscription{logger: log}))

	require.Eventually(t, func() bool { return log.reported() != nil }, outboxTimeout, time.Millisecond)
	require.ErrorContains(t, log.reported(), "sqlite: metadata of outbox row 1:")
}
