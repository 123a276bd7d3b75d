package mysql

import (
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/retention"
)

var _ retention.Dialect = Schema{}

// ProcessedAt is exact to the second.
func (s Schema) ProcessedAt() string { return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', processed_at)" }

// SweeperLock is a lock of the session, named after the table. On a cluster such as Galera each server has its own: two sweepers may then work at once, which does no harm.
func (s Schema) SweeperLock() (lock, held, unlock wsql.Query) {
	database := "COALESCE(DATABASE(), '')"
	if strings.Contains(s.name(), ".") {
		database = "''"
	}
	name := "SHA2(CONCAT('watermill-inbox sweeper ', " + database + ", '.', '" + s.name() + "'), 224)" // 56 of the 64 characters that a name may have
	return wsql.Query{Query: "SELECT 1 FROM DUAL WHERE GET_LOCK(" + name + ", 0) = 1"},
		wsql.Query{Query: "SELECT 1 FROM DUAL WHERE IS_USED_LOCK(" + name + ") = CONNECTION_ID()"},
		wsql.Query{Query: "SELECT RELEASE_LOCK(" + name + ")"}
}

// DeleteByKey forces the primary key, which a DELETE from one table cannot.
func (s Schema) DeleteByKey() string {
	return "DELETE FROM " + s.Table() + " USING " + s.Table() + " FORCE INDEX (PRIMARY)"
}

// ExplainJSON begins a plan.
func (s Schema) ExplainJSON() string { return "EXPLAIN FORMAT=JSON" }
