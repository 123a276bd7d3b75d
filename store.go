package inbox

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"

	"github.com/watermill-inbox/inbox/internal/sqltx"
)

// store runs the statements of a dialect.
type store struct {
	schema Schema
}

func (s store) initialize(ctx context.Context, tx wsql.Tx) error {
	for _, query := range s.schema.SchemaInitializingQueries() {
		if _, err := tx.ExecContext(ctx, query.Query, query.Args...); err != nil {
			return err
		}
	}
	return nil
}

// insert reports whether the row was inserted. If it was not, a committed row has its key, or had it a moment ago.
func (s store) insert(ctx context.Context, tx wsql.Tx, query wsql.Query) (bool, error) {
	affected, err := sqltx.Exec(ctx, tx, query)
	if err != nil && s.schema.Classify(err) == ClassDuplicate {
		return false, nil
	}
	return affected > 0, err
}

// storedIdentity is what the table knows about a processed identity.
type storedIdentity struct {
	fingerprint Fingerprint
	age         time.Duration
}

// find reads the committed row with the key of row. It reports false if there is none.
func (s store) find(ctx context.Context, tx wsql.Tx, row Row) (storedIdentity, bool, error) {
	var (
		encoded string
		age     int64
	)
	found, err := sqltx.QueryRow(ctx, tx, s.schema.SelectQuery(row), &encoded, &age)
	if err != nil || !found {
		return storedIdentity{}, false, err
	}
	fingerprint, err := hex.DecodeString(encoded)
	if err != nil {
		return storedIdentity{}, false, fmt.Errorf("stored fingerprint: %w", err)
	}
	return storedIdentity{
		fingerprint: DecodeFingerprint(string(fingerprint)),
		age:         max(0, time.Duration(age)*time.Second),
	}, true, nil
}

// verify compares the live table with the columns of the dialect.
func (s store) verify(ctx context.Context, tx wsql.Tx) error {
	return VerifyTable(ctx, tx, s.schema.Table(), s.schema.DescribeQuery(), s.schema.Columns())
}

// VerifyTable compares a live table, as describe lists it, with columns, and says in a *TableError what differs and why it matters.
func VerifyTable(ctx context.Context, tx wsql.ContextExecutor, table string, describe wsql.Query, columns []Column) error {
	live := map[string]string{}
	err := sqltx.Each(ctx, tx, describe, func(scan func(...any) error) error {
		var name, columnType string
		err := scan(&name, &columnType)
		live[name] = columnType
		return err
	})
	if err != nil {
		return err
	}
	if len(live) == 0 {
		return &TableError{Table: table}
	}

	var differences []string
	for _, column := range columns {
		columnType, ok := live[column.Name]
		switch {
		case !ok:
			differences = append(differences, fmt.Sprintf("%s is missing (%s)", column.Name, column.Why))
		case columnType != column.Type:
			differences = append(differences, fmt.Sprintf("%s is %s, not %s (%s)", column.Name, columnType, column.Type, column.Why))
		}
	}
	if len(differences) > 0 {
		return &TableError{Table: table, Differences: differences}
	}
	return nil
}
