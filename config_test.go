package inbox_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/mysql"
	"github.com/watermill-inbox/inbox/postgres"
	"github.com/watermill-inbox/inbox/sqlite"
)

// Every mistake is reported by New, with the name of the field.
func TestNewNamesTheField(t *testing.T) {
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	outbox := inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: wsql.DefaultMySQLSchema{}}, nil)

	for field, config := range map[string]inbox.Config{
		"Schema is missing":             {},
		"Schema: table name":            {Schema: postgres.Schema{MessagesTable: `x"; DROP TABLE y; --`}},
		"more than one dot":             {Schema: postgres.Schema{MessagesTable: "a.b.c"}},
		"Schema: table name \"ä":        {Schema: mysql.Schema{MessagesTable: "ä"}},
		"Schema: table name \"app.\"":   {Schema: sqlite.Schema{MessagesTable: "app."}},
		"Schema: table name \"x":        {Schema: postgres.Schema{MessagesTable: strings.Repeat("x", 64)}},
		"Consumer has 256 bytes":        {Schema: sqlite.Schema{}, Consumer: strings.Repeat("c", 256)},
		"Consumer is blank":             {Schema: sqlite.Schema{}, Consumer: " "},
		"ConsumerPrefix has 255 bytes":  {Schema: sqlite.Schema{}, ConsumerPrefix: strings.Repeat("c", 255)},
		"ConsumerPrefix is set":         {Schema: sqlite.Schema{}, Consumer: "a", ConsumerPrefix: "b"},
		"ShareConsumer":                 {Schema: sqlite.Schema{}, ShareConsumer: true},
		"TxOptions.ReadOnly":            {Schema: sqlite.Schema{}, TxOptions: &sql.TxOptions{ReadOnly: true}},
		"TxTimeout is negative":         {Schema: sqlite.Schema{}, TxTimeout: -time.Second},
		"WaitTimeout is negative":       {Schema: sqlite.Schema{}, WaitTimeout: -time.Second},
		"CommitTimeout is negative":     {Schema: sqlite.Schema{}, CommitTimeout: -time.Second},
		"ResolveTimeout is negative":    {Schema: sqlite.Schema{}, ResolveTimeout: -time.Second},
		"ConflictBackoff is negative":   {Schema: sqlite.Schema{}, ConflictBackoff: -time.Second},
		"HandlerContext":                {Schema: sqlite.Schema{}, HandlerContext: 7},
		"NoWait: sqlite.Schema":         {Schema: sqlite.Schema{}, NoWait: true},
		"TxOptions.Isolation is":        {Schema: mysql.Schema{}, NoWait: true, TxOptions: &sql.TxOptions{Isolation: sql.LevelSerializable}},
		"OutboxDecorators need":         {Schema: sqlite.Schema{}, OutboxDecorators: []message.PublisherDecorator{nil}},
		"OutboxDecorators[0] is nil":    {Schema: sqlite.Schema{}, Outbox: outbox, OutboxDecorators: []message.PublisherDecorator{nil}},
		"Outbox: invalid config":        {Schema: sqlite.Schema{}, Outbox: inbox.SQLOutbox(wsql.PublisherConfig{}, nil)},
		"Outbox: tried to use AutoInit": {Schema: sqlite.Schema{}, Outbox: inbox.SQLOutbox(wsql.PublisherConfig{SchemaAdapter: wsql.DefaultMySQLSchema{}, AutoInitializeSchema: true}, nil)},
		"Outbox: a factory may run no": {Schema: sqlite.Schema{}, Outbox: func(tx wsql.ContextExecutor) (message.Publisher, error) {
			_, err := tx.ExecContext(context.Background(), "CREATE TABLE x (a INT)")
			return nil, err
		}},
	} {
		_, err := inbox.New(wsql.BeginnerFromStdSQL(db), config, nil)
		require.ErrorContains(t, err, field)
		require.ErrorContains(t, err, "inbox: invalid config")
	}
}

// Several mistakes are reported together.
func TestNewReportsAllMistakes(t *testing.T) {
	_, err := inbox.New(nil, inbox.Config{TxTimeout: -1, WaitTimeout: -1}, nil)
	for _, part := range []string{"db is nil", "Schema is missing", "TxTimeout", "WaitTimeout"} {
		require.ErrorContains(t, err, part)
	}
}

func TestNewRefusesSingleConnections(t *testing.T) {
	for name, db := range map[string]wsql.Beginner{
		"*sql.Conn":     wsql.BeginnerFromStdSQL(&sql.Conn{}),
		"*pgx.Conn":     wsql.BeginnerFromPgx(&pgx.Conn{}),
		"*pgxpool.Conn": wsql.BeginnerFromPgx(&pgxpool.Conn{}),
		"nil *sql.DB":   wsql.BeginnerFromStdSQL((*sql.DB)(nil)),
		"wraps nil":     wsql.BeginnerFromStdSQL(nil),
	} {
		_, err := inbox.New(db, inbox.Config{Schema: postgres.Schema{}}, nil)
		require.ErrorContains(t, err, name)
	}
}
