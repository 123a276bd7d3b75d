package postgres

import (
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/retention"
)

var _ retention.Dialect = Schema{}

// ProcessedAt is exact to the microsecond.
func (s Schema) ProcessedAt() string { return "(EXTRACT(EPOCH FROM processed_at) * 1000000)::bigint" }

// SweeperLock is an advisory lock that ends with the transaction.
func (s Schema) SweeperLock() (lock, held, unlock wsql.Query) {
	return wsql.Query{Query: "SELECT 1 WHERE pg_try_advisory_xact_lock(hashtextextended('watermill-inbox sweeper', '" + s.Table() + "'::regclass::oid::bigint))"},
		wsql.Query{Query: "SELECT 1"}, wsql.Query{}
}

// DeleteByKey forces nothing: only the rows of the result are locked.
func (s Schema) DeleteByKey() string { return "DELETE FROM " + s.Table() }

// ExplainJSON begins a plan.
func (s Schema) ExplainJSON() string { return "EXPLAIN (FORMAT JSON)" }
