//go:build cgo

package sqlite_test

import (
	"net/url"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"github.com/watermill-inbox/inbox/inboxtest"
)

func TestConformanceMattn(t *testing.T) {
	inboxtest.TestSchema(t, database("sqlite3", url.Values{
		"_journal_mode": {"WAL"}, "_busy_timeout": {"5000"}, "_txlock": {"immediate"},
	}, false))
}
