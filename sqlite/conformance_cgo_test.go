//go:build cgo

package sqlite_test

import (
	"net/url"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"github.com/watermill-inbox/inbox/inboxtest"
)

func TestConformanceMattn(t *testing.T) {
	inboxtest.TestSchema(t, database("sqlite3", func(busy string) url.Values {
		return url.Values{"_journal_mode": {"WAL"}, "_busy_timeout": {busy}, "_txlock": {"immediate"}}
	}, false))
}
