package inbox_test

import (
	"database/sql"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/mysql"
	"github.com/watermill-inbox/inbox/postgres"
	"github.com/watermill-inbox/inbox/sqlite"
)

// nilObserver panics unless it is a pointer to something.
type nilObserver struct{ reports int }

func (o *nilObserver) ObserveDelivery(inbox.DeliveryReport) { o.reports++ }

type observerFunc func(inbox.DeliveryReport)

func (f observerFunc) ObserveDelivery(report inbox.DeliveryReport) { f(report) }

// noPublisher is a factory or a decorator that has nothing and no error.
func noPublisher(wsql.ContextExecutor) (message.Publisher, error) { return nil, nil }

func nilPublisher(wsql.ContextExecutor) (message.Publisher, error) {
	return (*wsql.Publisher)(nil), nil
}

func sqlOutbox() inbox.OutboxFactory {
	return inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: sqlite.OutboxSchema{}}, nil)
}

func decoratedBy(decorators ...message.PublisherDecorator) inbox.Config {
	return inbox.Config{Schema: sqlite.Schema{}, Outbox: sqlOutbox(), OutboxDecorators: decorators}
}

// mistakes are what can be wrong in each field, besides what TestNewNamesTheField has: values that the type allows and that would fail, or
// panic, only when the first message comes.
func mistakes() map[string][]inbox.Config {
	isolation := func(schema inbox.Schema, level sql.IsolationLevel) inbox.Config {
		return inbox.Config{Schema: schema, TxOptions: &sql.TxOptions{Isolation: level}}
	}
	same := func(p message.Publisher) (message.Publisher, error) { return p, nil }
	return map[string][]inbox.Config{
		"Schema": {
			{}, {Schema: (*postgres.Schema)(nil)}, {Schema: (*mysql.Schema)(nil), NoWait: true}, {Schema: (*sqlite.Schema)(nil), TxOptions: &sql.TxOptions{Isolation: 3}},
			{Schema: &postgres.Schema{MessagesTable: `"`}}, {Schema: mysql.Schema{MessagesTable: strings.Repeat("x", 65)}}, {Schema: sqlite.Schema{MessagesTable: "temp.x"}},
			{Schema: sqlite.Schema{MessagesTable: "main.SQLite_inbox"}}, {Schema: sqlite.Schema{MessagesTable: "x\x00"}}, {Schema: postgres.Schema{MessagesTable: "x\xff"}},
		},
		"Consumer": {
			{Schema: sqlite.Schema{}, Consumer: " "}, {Schema: sqlite.Schema{}, Consumer: "\u00a0\u2003\n"}, {Schema: sqlite.Schema{}, Consumer: strings.Repeat("ä", 128)},
			{Schema: sqlite.Schema{}, Consumer: strings.Repeat("\x00", 16<<20)},
		},
		"ConsumerPrefix": {
			{Schema: sqlite.Schema{}, ConsumerPrefix: strings.Repeat("c", 255)}, {Schema: sqlite.Schema{}, Consumer: "a", ConsumerPrefix: "b"},
		},
		"ShareConsumer":      {{Schema: sqlite.Schema{}, ShareConsumer: true}, {Schema: sqlite.Schema{}, ShareConsumer: true, ConsumerPrefix: "p"}},
		"TxTimeout":          {{Schema: sqlite.Schema{}, TxTimeout: -1}, {Schema: sqlite.Schema{}, TxTimeout: math.MinInt64}},
		"WaitTimeout":        {{Schema: sqlite.Schema{}, WaitTimeout: -1}},
		"CommitTimeout":      {{Schema: sqlite.Schema{}, CommitTimeout: -1}},
		"ResolveTimeout":     {{Schema: sqlite.Schema{}, ResolveTimeout: -1}},
		"ConflictBackoff":    {{Schema: sqlite.Schema{}, ConflictBackoff: -1}, {Schema: sqlite.Schema{}, ConflictBackoff: time.Second + 1}, {Schema: sqlite.Schema{}, ConflictBackoff: math.MaxInt64}},
		"HandlerContext":     {{Schema: sqlite.Schema{}, HandlerContext: -1}, {Schema: sqlite.Schema{}, HandlerContext: 2}},
		"NoWait":             {{Schema: sqlite.Schema{}, NoWait: true}, {Schema: &sqlite.Schema{}, NoWait: true}},
		"Observer":           {{Schema: sqlite.Schema{}, Observer: (*nilObserver)(nil)}, {Schema: sqlite.Schema{}, Observer: observerFunc(nil)}},
		"TxOptions.ReadOnly": {{Schema: sqlite.Schema{}, TxOptions: &sql.TxOptions{ReadOnly: true}}},
		"TxOptions.Isolation": {
			isolation(sqlite.Schema{}, -1), isolation(sqlite.Schema{}, 99), isolation(postgres.Schema{}, sql.LevelSnapshot), isolation(&mysql.Schema{}, sql.LevelLinearizable),
			isolation(mysql.Schema{}, sql.LevelWriteCommitted), isolation(nil, 8),
			{Schema: mysql.Schema{}, NoWait: true, TxOptions: &sql.TxOptions{Isolation: sql.LevelRepeatableRead}},
		},
		"Outbox": {
			{Schema: sqlite.Schema{}, Outbox: noPublisher}, {Schema: sqlite.Schema{}, Outbox: nilPublisher},
			{Schema: sqlite.Schema{}, Outbox: inbox.SQLOutbox(wsql.PublisherConfig{}, nil)},
			{Schema: sqlite.Schema{}, Outbox: inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: (*wsql.DefaultMySQLSchema)(nil)}, nil)},
		},
		"OutboxDecorators": {
			{Schema: sqlite.Schema{}, OutboxDecorators: []message.PublisherDecorator{same}},
			decoratedBy(same, nil),
			decoratedBy(same, func(message.Publisher) (message.Publisher, error) { return nil, nil }),
			decoratedBy(func(message.Publisher) (message.Publisher, error) { return (*wsql.Publisher)(nil), nil }),
			decoratedBy(func(message.Publisher) (message.Publisher, error) { return nil, errors.New("no ink") }),
		},
	}
}

// cannotBeWrong are the fields whose every value means something, and why.
var cannotBeWrong = map[string]string{
	"Identity":             "nil is the default; what a function returns is judged with each message",
	"Fingerprint":          "nil is the default; what a function returns is judged with each message",
	"OnMismatch":           "nil is the default",
	"Skip":                 "nil skips nothing",
	"OnEarlyAck":           "nil is the default",
	"AutoInitializeSchema": "both values are right",
	"SkipTransactionCheck": "both values are right; without a check there is none to skip",
	"ConflictRetries":      "zero is the default and negative means never",
}

// Every field that can be wrong is refused by New under its own name, and no field is forgotten here.
func TestEveryMistakeIsNamed(t *testing.T) {
	db := wsql.BeginnerFromStdSQL(new(sql.DB))
	covered := map[string]bool{}
	for field, configs := range mistakes() {
		name, _, _ := strings.Cut(field, ".")
		covered[name] = true
		for n, config := range configs {
			box, err := inbox.New(db, config, nil)
			require.ErrorContains(t, err, field, "%s, mistake %d", field, n)
			require.ErrorContains(t, err, "inbox: invalid config: ")
			require.Less(t, len(err.Error()), 2_000, "%s, mistake %d", field, n)
			require.Nil(t, box)
		}
	}
	for n := range reflect.TypeFor[inbox.Config]().NumField() {
		field := reflect.TypeFor[inbox.Config]().Field(n).Name
		require.True(t, covered[field] != (cannotBeWrong[field] != ""), "Config.%s: say what can be wrong with it, or why nothing can", field)
	}
}

// nilBeginner and nilLogger are interfaces that hold a nil pointer.
type nilBeginner struct{ wsql.Beginner }

type nilLogger struct{ watermill.LoggerAdapter }

func TestNewRefusesNilInsideOfInterfaces(t *testing.T) {
	for name, db := range map[string]wsql.Beginner{
		"nil *pgxpool.Pool":        wsql.BeginnerFromPgx((*pgxpool.Pool)(nil)),
		"nil *sql.DB":              wsql.BeginnerFromStdSQL((*sql.DB)(nil)),
		"*sql.StdSQLBeginner":      (*wsql.StdSQLBeginner)(nil),
		"*sql.PgxBeginner":         (*wsql.PgxBeginner)(nil),
		"*inbox_test.nilBeginner":  (*nilBeginner)(nil),
		"wraps nil":                wsql.BeginnerFromPgx(nil),
		"single connection (*pgx.": wsql.BeginnerFromPgx((*pgx.Conn)(nil)),
	} {
		_, err := inbox.New(db, inbox.Config{Schema: postgres.Schema{}}, nil)
		require.ErrorContains(t, err, name)
		require.ErrorContains(t, err, "inbox: invalid config: db ")
	}
	_, err := inbox.New(wsql.BeginnerFromStdSQL(new(sql.DB)), inbox.Config{Schema: postgres.Schema{}}, (*nilLogger)(nil))
	require.ErrorContains(t, err, "logger is a nil *inbox_test.nilLogger")
}

// Whatever the numbers are, New either takes them all or names each that is negative.
func TestNumbersAreTakenOrNamed(t *testing.T) {
	db := wsql.BeginnerFromStdSQL(new(sql.DB))
	require.NoError(t, quick.Check(func(tx, wait, commit, resolve, backoff time.Duration, retries int, consumer string) bool {
		backoff %= 2 * time.Second
		config := inbox.Config{
			Schema: postgres.Schema{}, Consumer: consumer, TxTimeout: tx, WaitTimeout: wait, CommitTimeout: commit, ResolveTimeout: resolve,
			ConflictBackoff: backoff, ConflictRetries: retries,
		}
		_, err := inbox.New(db, config, nil)
		fine := true
		for field, bad := range map[string]bool{
			"TxTimeout": tx < 0, "WaitTimeout": wait < 0, "CommitTimeout": commit < 0, "ResolveTimeout": resolve < 0,
			"ConflictBackoff": backoff < 0 || backoff > time.Second, "Consumer": len(consumer) > 255,
		} {
			fine = fine && !bad
			if named := err != nil && strings.Contains(err.Error(), field+" "); named != bad && strings.TrimSpace(consumer) != "" {
				t.Logf("%+v: %s: %v", config, field, err)
				return false
			}
		}
		return fine == (err == nil) || strings.TrimSpace(consumer) == ""
	}, nil))
}
