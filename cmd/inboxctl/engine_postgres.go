package main

import (
	"context"
	"net/url"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/postgres"
)

var postgresEngine = engine{
	schemes: []string{"postgres", "postgresql"},
	schema: func(names tableNames) deferred.Dialect {
		return postgres.Schema{MessagesTable: names.messages, PendingTable: names.pending, OutgoingTable: names.outgoing}
	},
	open: openPostgres,
}

func openPostgres(ctx context.Context, dsn string, _ bool) (wsql.Beginner, func(), error) {
	if !isURL(dsn) {
		return nil, nil, badDSN("postgres://user:password@host:port/database")
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, badDSN("postgres://user:password@host:port/database?parameters")
	}
	if _, ok := config.ConnConfig.RuntimeParams["application_name"]; !ok {
		config.ConnConfig.RuntimeParams["application_name"] = "inboxctl"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, nil, err
	}
	return wsql.BeginnerFromPgx(pool), pool.Close, nil
}

// isURL tells whether a DSN is a URL that has its user, if there is one, where a URL has it. A password with an unescaped #, / or ? ends up elsewhere.
func isURL(dsn string) bool {
	u, err := url.Parse(dsn)
	return err == nil && u.Opaque == "" && u.Fragment == "" && (u.User != nil || !strings.Contains(dsn, "@"))
}
