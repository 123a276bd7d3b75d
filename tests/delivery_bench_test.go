package tests

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	_ "github.com/watermill-inbox/inbox/internal/modernc"
	"github.com/watermill-inbox/inbox/mysql"
	"github.com/watermill-inbox/inbox/postgres"
	"github.com/watermill-inbox/inbox/sqlite"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

const benchConnections = 8

// BenchmarkDelivery compares the bare transaction with the same effect, a one-row UPDATE of distinct rows, under the inbox, and a
// duplicate with both. Compare the figures of one run with each other, as ratios.
func BenchmarkDelivery(b *testing.B) {
	for _, bench := range []struct {
		name   string
		open   func(b *testing.B) wsql.Beginner
		schema inbox.Schema
	}{
		{"postgres-pgx", benchPgx, postgres.Schema{MessagesTable: "bench_inbox"}},
		{"postgres-database-sql", benchSQL("INBOX_TEST_POSTGRES", postgresDSN, "pgx"), postgres.Schema{MessagesTable: "bench_inbox"}},
		{"mysql", benchSQL("INBOX_TEST_MYSQL", mysqlDSN, "mysql"), mysql.Schema{MessagesTable: "bench_inbox"}},
		{"mariadb", benchSQL("INBOX_TEST_MARIADB", mariadbDSN, "mysql"), mysql.Schema{MessagesTable: "bench_inbox"}},
		{"sqlite", benchSQLite, sqlite.Schema{MessagesTable: "bench_inbox"}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			db := bench.open(b)
			prepareBench(b, db)
			ctx := context.Background()
			in, err := inbox.New(db, inbox.Config{Schema: bench.schema, Consumer: "bench", AutoInitializeSchema: true}, nil)
			require.NoError(b, err)
			effect := func(ctx context.Context, tx wsql.Tx) error {
				_, err := tx.ExecContext(ctx, "UPDATE bench_stock SET units = units - 1 WHERE id = "+strconv.Itoa(rand.IntN(1000)))
				return err
			}
			handle := func(ctx context.Context) error {
				tx, _ := inbox.TxFromContext(ctx)
				return effect(ctx, tx)
			}

			b.Run("bare", func(b *testing.B) {
				inParallel(b, func() error {
					tx, err := db.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					if err := effect(ctx, tx); err != nil {
						return err
					}
					return tx.Commit()
				})
			})
			var n atomic.Int64
			b.Run("inbox", func(b *testing.B) {
				inParallel(b, func() error {
					_, err := in.Process(message.NewMessage("00000000-0000-4000-8000-"+strconv.FormatInt(n.Add(1), 10), []byte("payload")), handle)
					return err
				})
			})
			b.Run("duplicate", func(b *testing.B) {
				inParallel(b, func() error {
					_, err := in.Process(message.NewMessage("duplicate", []byte("payload")), handle)
					return err
				})
			})
		})
	}
}

func inParallel(b *testing.B, run func() error) {
	b.ReportAllocs()
	b.SetParallelism(benchConnections / 2)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := run(); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

func prepareBench(b *testing.B, db wsql.Beginner) {
	exec := func(statement string) {
		_, err := db.ExecContext(context.Background(), statement)
		require.NoError(b, err)
	}
	clean := func() {
		exec("DROP TABLE IF EXISTS bench_inbox")
		exec("DROP TABLE IF EXISTS bench_stock")
	}
	clean()
	b.Cleanup(clean)
	exec("CREATE TABLE bench_stock (id INT PRIMARY KEY, units INT)")
	rows := "(0, 0)"
	for id := 1; id < 1000; id++ {
		rows += fmt.Sprintf(", (%d, 0)", id)
	}
	exec("INSERT INTO bench_stock VALUES " + rows)
}

func benchPgx(b *testing.B) wsql.Beginner {
	config, err := pgxpool.ParseConfig(inboxtest.Server(b, "INBOX_TEST_POSTGRES", postgresDSN, databases.Ping("pgx")))
	require.NoError(b, err)
	config.MaxConns = benchConnections
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	require.NoError(b, err)
	b.Cleanup(pool.Close)
	return wsql.BeginnerFromPgx(pool)
}

func benchSQL(variable, fallback, driver string) func(b *testing.B) wsql.Beginner {
	return func(b *testing.B) wsql.Beginner {
		return benchPool(b, driver, inboxtest.Server(b, variable, fallback, databases.Ping(driver)))
	}
}

func benchSQLite(b *testing.B) wsql.Beginner {
	return benchPool(b, "sqlite", "file:"+filepath.Join(b.TempDir(), "bench.db")+
		"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(5000)&_pragma=synchronous(FULL)&_txlock=immediate")
}

func benchPool(b *testing.B, driver, dsn string) wsql.Beginner {
	db, err := sql.Open(driver, dsn)
	require.NoError(b, err)
	db.SetMaxOpenConns(benchConnections)
	db.SetMaxIdleConns(benchConnections)
	b.Cleanup(func() { _ = db.Close() })
	return wsql.BeginnerFromStdSQL(db)
}
