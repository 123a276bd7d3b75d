package sqlite

import (
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/retention"
)

var _ retention.Dialect = Schema{}

// ProcessedAt is exact to the second.
func (s Schema) ProcessedAt() string { return "processed_at * 1000000" }

// SweeperLock is not needed: there is one writer, and a file of SQLite has one process as a rule.
func (s Schema) SweeperLock() (lock, held, unlock wsql.Query) {
	return wsql.Query{}, wsql.Query{}, wsql.Query{}
}

// DeleteByKey forces nothing: there are no locks of rows.
func (s Schema) DeleteByKey() string { return "DELETE FROM " + s.Table() }

// ExplainJSON is empty: plans of SQLite have no numbers of rows.
func (s Schema) ExplainJSON() string { return "" }
