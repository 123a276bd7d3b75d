package brokertest

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of the tests' own statements
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/postgres"
)

const outboxTopic = "outbox"

// createDatabase makes a database for one run. The cases tell their rows apart by the consumer.
func createDatabase(t *testing.T) (dsn string, db *sql.DB) {
	t.Helper()
	address := inboxtest.Server(t, "INBOX_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable", pingPostgres)
	admin := openPostgres(t, address)
	name := fmt.Sprintf("inbox_brokertest_%d", time.Now().UnixNano())
	_, err := admin.Exec("CREATE DATABASE " + name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec("DROP DATABASE " + name + " WITH (FORCE)")
		require.NoError(t, err)
	})

	u, err := url.Parse(address)
	require.NoError(t, err)
	u.Path = "/" + name
	dsn = u.String()
	db = openPostgres(t, dsn)
	createTables(t, db)
	return dsn, db
}

func createTables(t *testing.T, db *sql.DB) {
	// No key: the inbox alone must prevent a second row.
	_, err := db.Exec("CREATE TABLE effects (consumer TEXT NOT NULL, id TEXT NOT NULL)")
	require.NoError(t, err)

	box, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{Schema: postgres.Schema{}}, nil)
	require.NoError(t, err)
	require.NoError(t, box.InitializeSchema(context.Background()))

	outbox, err := wsql.NewSubscriber(wsql.BeginnerFromStdSQL(db), wsql.SubscriberConfig{
		SchemaAdapter:  wsql.DefaultPostgreSQLSchema{},
		OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{},
	}, watermill.NopLogger{})
	require.NoError(t, err)
	require.NoError(t, outbox.SubscribeInitialize(outboxTopic))
	require.NoError(t, outbox.Close())
}

func openPostgres(t *testing.T, dsn string) *sql.DB {
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func pingPostgres(dsn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	return pool.Ping(ctx)
}

// rows are what is durable of one case.
type rows struct{ effects, effectIDs, identities, outbox int }

// all are the rows of n messages of which each had its effect once.
func all(n int) rows { return rows{n, n, n, n} }

func (c *testCase) rows() (r rows) {
	c.Helper()
	require.NoError(c, c.db.QueryRowContext(c.ctx, `SELECT
		(SELECT COUNT(*) FROM effects WHERE consumer = $1),
		(SELECT COUNT(DISTINCT id) FROM effects WHERE consumer = $1),
		(SELECT COUNT(*) FROM inbox_messages WHERE consumer = convert_to($1, 'UTF8')),
		(SELECT COUNT(*) FROM watermill_outbox WHERE payload->>'consumer' = $1)`, c.group,
	).Scan(&r.effects, &r.effectIDs, &r.identities, &r.outbox))
	return r
}

// requireStored checks that the one identity of the case is the id that the producer gave the message.
func (c *testCase) requireStored(id string) {
	c.Helper()
	var stored string
	require.NoError(c, c.db.QueryRowContext(c.ctx,
		`SELECT convert_from(message_id, 'UTF8') FROM inbox_messages WHERE consumer = convert_to($1, 'UTF8')`, c.group).Scan(&stored))
	require.Equal(c, id, stored)
}
