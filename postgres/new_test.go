package postgres_test

import (
	"context"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/postgres"
)

// A single connection cannot serve two messages at once, and cannot look at what became of a COMMIT that broke it.
func TestNewRefusesASingleConnection(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pool := newPool(t, inboxtest.Server(t, "INBOX_TEST_POSTGRES", "postgres://postgres@127.0.0.1:5432/test?sslmode=disable", ping))
	acquired, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer acquired.Release()

	for name, conn := range map[string]wsql.Conn{"*pgxpool.Conn": acquired, "*pgx.Conn": acquired.Conn(), "nil": (*pgx.Conn)(nil)} {
		t.Run(name, func(t *testing.T) {
			_, err := inbox.New(wsql.BeginnerFromPgx(conn), inbox.Config{Schema: postgres.Schema{}, Consumer: "billing"}, nil)
			require.ErrorContains(t, err, "single connection")
		})
	}
	_, err = inbox.New(wsql.BeginnerFromPgx(pool), inbox.Config{Schema: postgres.Schema{}, Consumer: "billing"}, nil)
	require.NoError(t, err)
}
