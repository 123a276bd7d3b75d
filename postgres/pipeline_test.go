package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/postgres"
)

// modes are how pgx can send statements.
var modes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// TestPipelinedTransaction uses all that a transaction of pgx can do in a handler, whose BEGIN was sent together with the insert of the identity, and
// rolls all of it back, or none.
func TestPipelinedTransaction(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			_, server, namespace := newNamespace(t)
			pool := newPool(t, withParameters(t, server, "search_path", namespace, "default_query_exec_mode", mode))
			ctx := context.Background()
			_, err := pool.Exec(ctx, "CREATE TABLE biz (step TEXT PRIMARY KEY)")
			require.NoError(t, err)
			box, err := inbox.New(wsql.BeginnerFromPgx(pool), inbox.Config{Schema: postgres.Schema{}, Consumer: "billing", AutoInitializeSchema: true}, nil)
			require.NoError(t, err)

			var late pgx.Tx
			failure := errors.New("no ink")
			for _, want := range []error{failure, nil, nil} { // the third is a duplicate
				_, err := box.Process(message.NewMessage("m1", nil), func(ctx context.Context) error {
					tx, ok := inbox.PgxTxFromContext(ctx)
					require.True(t, ok)
					late = tx
					everything(ctx, t, tx)
					return want
				})
				require.ErrorIs(t, err, want)
				wantSteps := 0
				if want == nil {
					wantSteps = 6
				}
				require.Equal(t, wantSteps, number(t, pool, "SELECT count(*) FROM biz"))
			}
			require.Equal(t, 1, number(t, pool, "SELECT count(*) FROM inbox_messages"))
			requireEnded(t, late)
			require.Zero(t, pool.Stat().AcquiredConns())
		})
	}
}

func newPool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func number(t *testing.T, pool *pgxpool.Pool, query string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(context.Background(), query, args...).Scan(&n))
	return n
}

const insertStep = "INSERT INTO biz VALUES ($1)"

// everything leaves six rows.
func everything(ctx context.Context, t *testing.T, tx pgx.Tx) {
	t.Helper()
	_, err := tx.Exec(ctx, insertStep, "exec")
	require.NoError(t, err)

	kept, err := tx.Begin(ctx)
	require.NoError(t, err)
	_, err = kept.Exec(ctx, insertStep, "savepoint")
	require.NoError(t, err)
	require.NoError(t, kept.Commit(ctx))
	undone, err := tx.Begin(ctx)
	require.NoError(t, err)
	_, err = undone.Exec(ctx, insertStep, "savepoint") // a duplicate key, which the savepoint undoes
	require.Error(t, err)
	require.NoError(t, undone.Rollback(ctx))

	copied, err := tx.CopyFrom(ctx, pgx.Identifier{"biz"}, []string{"step"}, pgx.CopyFromRows([][]any{{"copy 1"}, {"copy 2"}}))
	require.NoError(t, err)
	require.EqualValues(t, 2, copied)

	batch := &pgx.Batch{}
	batch.Queue(insertStep, "batch")
	require.NoError(t, tx.SendBatch(ctx, batch).Close())

	_, err = tx.Prepare(ctx, "step", insertStep)
	require.NoError(t, err)
	_, err = tx.Exec(ctx, "step", "prepared")
	require.NoError(t, err)
	require.NoError(t, tx.Conn().Deallocate(ctx, "step"))

	objects := tx.LargeObjects()
	object, err := objects.Create(ctx, 0)
	require.NoError(t, err)
	require.NoError(t, objects.Unlink(ctx, object))

	var n int
	require.NoError(t, tx.QueryRow(ctx, "SELECT count(*) FROM biz WHERE step <> $1", "none").Scan(&n))
	require.Equal(t, 6, n)
	rows, err := tx.Query(ctx, "SELECT step FROM biz")
	require.NoError(t, err)
	steps, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Len(t, steps, 6)
}

// requireEnded uses a transaction after its end.
func requireEnded(t *testing.T, tx pgx.Tx) {
	t.Helper()
	ctx := context.Background()
	_, err := tx.Exec(ctx, "SELECT 1")
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	rows, err := tx.Query(ctx, "SELECT 1")
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	require.False(t, rows.Next())
	rows.Close()
	require.ErrorIs(t, tx.QueryRow(ctx, "SELECT 1").Scan(new(int)), pgx.ErrTxClosed)
	_, err = tx.Begin(ctx)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = tx.Prepare(ctx, "late", "SELECT 1")
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"biz"}, []string{"step"}, pgx.CopyFromRows(nil))
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	results := tx.SendBatch(ctx, &pgx.Batch{})
	_, err = results.Exec()
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	require.ErrorIs(t, results.Close(), pgx.ErrTxClosed)
}

// TestCachedPlanFitsAGrownTable caches the plan of a claim's end while the tables are empty and PostgreSQL knows it, as after a nightly vacuum: the
// plan must not read all of them when they have grown.
func TestCachedPlanFitsAGrownTable(t *testing.T) {
	_, server, namespace := newNamespace(t)
	pool := newPool(t, withParameters(t, server, "search_path", namespace, "pool_max_conns", "1"))
	ctx := context.Background()
	for _, statement := range []string{"CREATE TABLE claims (id BIGINT PRIMARY KEY)", "VACUUM ANALYZE claims"} {
		_, err := pool.Exec(ctx, statement)
		require.NoError(t, err)
	}
	end := claimsOf(t, pool)
	for id := range int64(10) {
		require.Equal(t, id > 0, end(id)) // the first deletes nothing, so its row must not be there
	}
	require.Zero(t, number(t, pool, "SELECT count(*) FROM claims"))

	_, err := pool.Exec(ctx, "INSERT INTO claims SELECT generate_series(1, 100000)")
	require.NoError(t, err)
	var name string
	require.NoError(t, pool.QueryRow(ctx, "SELECT name FROM pg_prepared_statements WHERE statement LIKE 'WITH affected%' AND generic_plans > 0").Scan(&name))
	rows, err := pool.Query(ctx, "EXPLAIN EXECUTE "+name+"(5)", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, strings.Join(plan, "\n"), "Index Scan using claims_pkey")
}

// claimsOf returns what inserts a row into claims and ends its transaction with a DELETE of that row, but for the row 0.
func claimsOf(t *testing.T, pool *pgxpool.Pool) func(id int64) (affected bool) {
	ctx := context.Background()
	_, db := postgres.Schema{}.TunePool(wsql.BeginnerFromPgx(pool))
	return func(id int64) (affected bool) {
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, "INSERT INTO claims VALUES ($1)", id)
		require.NoError(t, err)
		native := tx.(wsql.PgxTx).Tx
		affected, statementErr, commitErr := native.(inbox.StatementCommitter).ExecCommit(ctx, wsql.Query{Query: "DELETE FROM claims WHERE id = $1", Args: []any{max(id, 1)}})
		require.NoError(t, statementErr)
		require.NoError(t, commitErr)
		if !affected {
			require.NoError(t, native.Rollback(ctx))
		}
		return affected
	}
}

// TestCommitPlansAsUsual keeps the setting of a claim's end away from what the user defers to COMMIT.
func TestCommitPlansAsUsual(t *testing.T) {
	_, server, namespace := newNamespace(t)
	pool := newPool(t, withParameters(t, server, "search_path", namespace))
	_, err := pool.Exec(context.Background(), `
		CREATE TABLE claims (id BIGINT PRIMARY KEY);
		CREATE TABLE seen (setting TEXT);
		CREATE FUNCTION see() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (current_setting('enable_seqscan')); RETURN NULL; END $$;
		CREATE CONSTRAINT TRIGGER see AFTER INSERT ON claims DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see()`)
	require.NoError(t, err)
	require.True(t, claimsOf(t, pool)(7))
	require.Equal(t, 1, number(t, pool, "SELECT count(*) FROM seen WHERE setting = 'on'"))
}
