package tests

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/mysql"
	"github.com/watermill-inbox/inbox/postgres"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// TestRoundTrips keeps the number of round trips per message known. The handler's statement is a text without parameters, which is
// one round trip with every driver, so what is more than the bare transaction is the inbox's.
func TestRoundTrips(t *testing.T) {
	for _, test := range []struct {
		name                   string
		open                   func(t *testing.T) roundTripDB
		config                 inbox.Config
		bare, fresh, duplicate int64
	}{
		// BEGIN, effect, COMMIT become BEGIN, insert, effect, COMMIT. A duplicate is BEGIN, insert, select, ROLLBACK.
		// A pool of pgx sends BEGIN and insert together.
		{"postgres-pgx", openPgx, inbox.Config{Schema: postgres.Schema{}}, 3, 3, 3},
		{"postgres-database-sql-pgx", openPostgres("pgx"), inbox.Config{Schema: postgres.Schema{}}, 3, 4, 4},
		// lib/pq prepares the select, which has parameters.
		{"postgres-database-sql-pq", openPostgres("postgres"), inbox.Config{Schema: postgres.Schema{}}, 3, 4, 5},
		// MySQL has the check that the engine has not ended the transaction, unless that is switched off.
		{"mysql", openMySQL("INBOX_TEST_MYSQL", mysqlDSN, ""), inbox.Config{Schema: mysql.Schema{}}, 3, 5, 4},
		{"mysql-interpolateParams", openMySQL("INBOX_TEST_MYSQL", mysqlDSN, "interpolateParams"), inbox.Config{Schema: mysql.Schema{}}, 3, 5, 4},
		{"mysql-without-check", openMySQL("INBOX_TEST_MYSQL", mysqlDSN, ""), inbox.Config{Schema: mysql.Schema{}, SkipTransactionCheck: true}, 3, 4, 4},
		{"mariadb", openMySQL("INBOX_TEST_MARIADB", mariadbDSN, ""), inbox.Config{Schema: mysql.Schema{}}, 3, 5, 4},
		{"mariadb-without-check", openMySQL("INBOX_TEST_MARIADB", mariadbDSN, ""), inbox.Config{Schema: mysql.Schema{}, SkipTransactionCheck: true}, 3, 4, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			db := test.open(t)
			table := fmt.Sprintf("roundtrips_%s", strings.ReplaceAll(test.name, "-", "_"))
			effect := "UPDATE " + table + " SET units = units - 1"
			ctx := context.Background()
			for _, statement := range []string{
				"DROP TABLE IF EXISTS " + table, "DROP TABLE IF EXISTS " + table + "_inbox",
				"CREATE TABLE " + table + " (units INT)", "INSERT INTO " + table + " VALUES (1000)",
			} {
				_, err := db.ExecContext(ctx, statement)
				require.NoError(t, err)
			}
			t.Cleanup(func() {
				for _, statement := range []string{"DROP TABLE " + table, "DROP TABLE " + table + "_inbox"} {
					_, err := db.ExecContext(ctx, statement)
					require.NoError(t, err)
				}
			})

			config := test.config
			config.Consumer, config.AutoInitializeSchema = "roundtrips", true
			switch config.Schema.(type) {
			case postgres.Schema:
				config.Schema = postgres.Schema{MessagesTable: table + "_inbox"}
			case mysql.Schema:
				config.Schema = mysql.Schema{MessagesTable: table + "_inbox"}
			}
			in, err := inbox.New(db.Beginner, config, nil)
			require.NoError(t, err)

			bare := func(string) {
				tx, err := db.BeginTx(ctx, nil)
				require.NoError(t, err)
				_, err = tx.ExecContext(ctx, effect)
				require.NoError(t, err)
				require.NoError(t, tx.Commit())
			}
			process := func(id string) {
				_, err := in.Process(message.NewMessage(id, []byte("p")), func(ctx context.Context) error {
					tx, _ := inbox.TxFromContext(ctx)
					_, err := tx.ExecContext(ctx, effect)
					return err
				})
				require.NoError(t, err)
			}
			// The second run of each counts: the first may open a connection and prepare a statement.
			turns := func(run func(id string), warmUp, id string) int64 {
				run(warmUp)
				before := db.turns.Load()
				run(id)
				return db.turns.Load() - before
			}

			require.Equal(t, test.bare, turns(bare, "", ""), "bare transaction")
			require.Equal(t, test.fresh, turns(process, "m1", "m2"), "new message")
			require.Equal(t, test.duplicate, turns(process, "m1", "m2"), "duplicate")
		})
	}
}

// roundTripDB is a database behind a proxy that counts.
type roundTripDB struct {
	wsql.Beginner
	turns *atomic.Int64
}

func openPgx(t *testing.T) roundTripDB {
	address, turns := countedPostgres(t)
	pool, err := pgxpool.New(context.Background(), address)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return roundTripDB{wsql.BeginnerFromPgx(pool), turns}
}

func openPostgres(driver string) func(t *testing.T) roundTripDB {
	return func(t *testing.T) roundTripDB {
		address, turns := countedPostgres(t)
		return roundTripDB{wsql.BeginnerFromStdSQL(openPool(t, driver, address)), turns}
	}
}

func openMySQL(variable, fallback, option string) func(t *testing.T) roundTripDB {
	return func(t *testing.T) roundTripDB {
		config, err := mysqldriver.ParseDSN(inboxtest.Server(t, variable, fallback, databases.Ping("mysql")))
		require.NoError(t, err)
		addr, turns := countTurns(t, config.Addr)
		config.Addr = addr
		config.InterpolateParams = option == "interpolateParams"
		return roundTripDB{wsql.BeginnerFromStdSQL(openPool(t, "mysql", config.FormatDSN())), turns}
	}
}

func countedPostgres(t *testing.T) (string, *atomic.Int64) {
	address, err := url.Parse(inboxtest.Server(t, "INBOX_TEST_POSTGRES", postgresDSN, databases.Ping("pgx")))
	require.NoError(t, err)
	addr, turns := countTurns(t, address.Host)
	address.Host = addr
	return address.String(), turns
}

func openPool(t *testing.T, driver, dsn string) *sql.DB {
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// countTurns starts a TCP proxy that counts round trips: how often the client speaks after the server has.
func countTurns(t *testing.T, server string) (addr string, turns *atomic.Int64) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })

	turns = new(atomic.Int64)
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				return
			}
			forwardTurns(client, upstream, turns)
		}
	}()
	return listener.Addr().String(), turns
}

func forwardTurns(client, server net.Conn, turns *atomic.Int64) {
	var (
		serverSpoke atomic.Bool
		once        sync.Once
	)
	serverSpoke.Store(true)
	closeBoth := func() { once.Do(func() { _ = client.Close(); _ = server.Close() }) }

	go func() {
		defer closeBoth()
		_, _ = io.Copy(writerFunc(func(b []byte) (int, error) {
			serverSpoke.Store(true) // before the client can see the answer and speak again
			return client.Write(b)
		}), server)
	}()
	go func() {
		defer closeBoth()
		_, _ = io.Copy(writerFunc(func(b []byte) (int, error) {
			if serverSpoke.Swap(false) {
				turns.Add(1)
			}
			return server.Write(b)
		}), client)
	}()
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
