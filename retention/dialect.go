package retention

import (
	"errors"
	"fmt"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/deferred"
)

// Dialect is what a SQL dialect knows beyond deferred.Dialect for retention. It is an optional interface of a Schema; postgres.Schema, mysql.Schema and
// sqlite.Schema have it.
//
// Implementations must be safe for concurrent use and must not change.
type Dialect interface {
	deferred.Dialect

	// ProcessedAt is an expression for the column processed_at in microseconds since 1970 UTC, to be compared with Now.
	ProcessedAt() string

	// SweeperLock returns the statements of a lock that belongs to this table of identities and to the connection that has it: lock takes it, or yields no row
	// at once; held yields a row while this connection has it; unlock gives it back, if the end of the transaction does not. A zero lock: not needed,
	// because all writers wait for each other anyway.
	SweeperLock() (lock, held, unlock wsql.Query)

	// DeleteByKey begins a DELETE from the table of identities, up to its WHERE, that finds its rows by the primary key. An engine that locks all rows that it reads must not read a small
	// table as a whole, because it would wait for messages in flight.
	DeleteByKey() string

	// ExplainJSON begins a statement that returns the plan of the SELECT behind it as one JSON text. Empty: plans have no numbers of rows.
	ExplainJSON() string
}

func dialectOf(schema inbox.Schema) (Dialect, error) {
	if schema == nil {
		return nil, errors.New("Schema is missing: set postgres.Schema{}, mysql.Schema{} or sqlite.Schema{}") //nolint:staticcheck,revive // the name of a field
	}
	dialect, ok := schema.(Dialect)
	if !ok {
		return nil, fmt.Errorf("Schema: %T cannot sweep: it must implement retention.Dialect, as postgres.Schema, mysql.Schema and sqlite.Schema do", schema) //nolint:staticcheck,revive // the name of a field
	}
	if err := schema.Validate(); err != nil {
		return nil, fmt.Errorf("Schema: %w", err) //nolint:staticcheck,revive // the name of a field
	}
	return dialect, nil
}
