package main

import (
	"cmp"
	"context"
	"database/sql"
	"net"
	"net/url"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	driver "github.com/go-sql-driver/mysql"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/mysql"
)

// mysqlEngine is MariaDB, too.
var mysqlEngine = engine{
	schemes: []string{"mysql"},
	schema: func(names tableNames) deferred.Dialect {
		return mysql.Schema{MessagesTable: names.messages, PendingTable: names.pending, OutgoingTable: names.outgoing}
	},
	open: openMySQL,
}

func openMySQL(ctx context.Context, dsn string, _ bool) (wsql.Beginner, func(), error) {
	config, err := mysqlConfig(dsn)
	if err != nil {
		return nil, nil, badDSN("mysql://user:password@host:port/database?parameters or mysql:user:password@tcp(host:port)/database?parameters")
	}
	config.Logger = &driver.NopLogger{} // it would write to standard error
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, nil, badDSN("of go-sql-driver/mysql")
	}
	db := sql.OpenDB(connector)
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, nil, err
	}
	return wsql.BeginnerFromStdSQL(db), func() { _ = db.Close() }, nil
}

// mysqlConfig reads both forms of a DSN. Its errors may quote the DSN.
func mysqlConfig(dsn string) (*driver.Config, error) {
	if !strings.HasPrefix(dsn, "mysql://") {
		return driver.ParseDSN(strings.TrimPrefix(dsn, "mysql:"))
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	if !isURL(dsn) {
		return nil, net.InvalidAddrError("user and password are not where a URL has them")
	}
	// The parameters are those of the driver, which alone knows them all.
	config, err := driver.ParseDSN("/?" + u.Query().Encode())
	if err != nil {
		return nil, err
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Net, config.Addr = "tcp", net.JoinHostPort(cmp.Or(u.Hostname(), "127.0.0.1"), cmp.Or(u.Port(), "3306"))
	config.DBName = strings.TrimPrefix(u.Path, "/")
	return config, nil
}
