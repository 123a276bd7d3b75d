//go:build cgo

package sqlite_test

import _ "github.com/mattn/go-sqlite3"

func init() {
	outboxEngines = append(outboxEngines, outboxEngine{
		name:   "mattn",
		driver: "sqlite3",
		dsn:    "file:%s?_busy_timeout=%d&_journal_mode=%s&_txlock=%s",
	})
}
