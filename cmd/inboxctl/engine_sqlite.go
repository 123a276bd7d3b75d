package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	_ "modernc.org/sqlite" // the driver

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/sqlite"
)

var sqliteEngine = engine{
	schemes: []string{"sqlite", "file"},
	schema: func(names tableNames) deferred.Dialect {
		return sqlite.Schema{MessagesTable: names.messages, PendingTable: names.pending, OutgoingTable: names.outgoing}
	},
	open: openSQLite,
}

func openSQLite(ctx context.Context, dsn string, create bool) (wsql.Beginner, func(), error) {
	uri, path, err := sqliteURI(dsn, create)
	if err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) && !create {
		return nil, nil, fmt.Errorf("there is no file %q", path)
	}
	db, err := sql.Open("sqlite", uri)
	if err != nil {
		return nil, nil, err
	}
	// The header is read with the first statement that needs the schema.
	var n int
	if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM sqlite_master").Scan(&n); err != nil {
		_ = db.Close()
		return nil, nil, err
	}
	return wsql.BeginnerFromStdSQL(db), func() { _ = db.Close() }, nil
}

// sqliteURI makes a URI that waits for another writer, and makes no file unless create says so.
func sqliteURI(dsn string, create bool) (uri, path string, err error) {
	const form = "sqlite:path or file:path?parameters"
	scheme, rest, _ := strings.Cut(dsn, ":")
	path, rawQuery, _ := strings.Cut(rest, "?")
	if scheme == "file" {
		if path, err = url.PathUnescape(path); err != nil {
			return "", "", badDSN(form)
		}
		if after, ok := strings.CutPrefix(path, "//"); ok { // file://host/path, and the host is empty or localhost
			if _, path, ok = strings.Cut(after, "/"); !ok {
				return "", "", badDSN(form)
			}
			path = "/" + path
		}
	}
	query, err := url.ParseQuery(rawQuery)
	if err != nil || path == "" {
		return "", "", badDSN(form)
	}
	if !query.Has("mode") {
		query.Set("mode", "rw")
		if create {
			query.Set("mode", "rwc")
		}
	}
	if !strings.Contains(strings.Join(query["_pragma"], " "), "busy_timeout") {
		query.Add("_pragma", "busy_timeout(5000)")
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + query.Encode(), path, nil
}
