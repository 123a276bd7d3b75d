package deferred

import (
	"context"
	"database/sql"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// reserve takes a connection out of the pool, so that handlers that use all others cannot keep leases from being renewed. Of a pool that it does not
// know it returns the pool.
func reserve(ctx context.Context, db wsql.Beginner) (wsql.Beginner, func(), error) {
	switch pool := sqltx.Unwrap(db).(type) {
	case *sql.DB:
		conn, err := pool.Conn(ctx)
		if err != nil {
			return nil, nil, err
		}
		return wsql.BeginnerFromStdSQL(conn), func() { _ = conn.Close() }, nil
	case *pgxpool.Pool:
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, nil, err
		}
		return wsql.BeginnerFromPgx(conn), conn.Release, nil
	}
	return db, func() {}, nil
}
