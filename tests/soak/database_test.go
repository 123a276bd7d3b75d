package soak

import (
	"context"
	"database/sql"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/mysql"
	"github.com/watermill-inbox/inbox/postgres"
)

// database is what the service and the test need to know of a kind of database.
type database struct {
	name     string
	variable string // may say that this database is unavailable
	driver   string // of database/sql, for the test's own statements

	find   func(dir string, port int) (engine, error)
	schema inbox.Schema
	outbox outboxSchema
	open   func(dsn string) (pool wsql.Beginner, closePool func(), err error) // as the service does

	count, record, recorded string // statements of the consumer
	openTransactions        string // counts those of other connections
	commits                 string // counts the COMMITs that run
}

// outboxSchema is what the schemas for watermill-sql have in common.
type outboxSchema interface {
	wsql.SchemaAdapter
	MessagesTable(topic string) string
}

// outgoing is the topic of the messages that the handler produces. They stay in the outbox, where the test counts them.
const outgoing = "outgoing"

var databases = []database{
	{
		name:     "postgres",
		variable: "INBOX_TEST_POSTGRES",
		driver:   "pgx",
		find:     findPostgres,
		schema:   postgres.Schema{},
		outbox:   wsql.PostgreSQLQueueSchema{},
		open:     openPgx,
		count:    "UPDATE counters SET n = n + 1 WHERE id = $1",
		record:   "INSERT INTO effects (message_id) VALUES ($1)",
		recorded: "SELECT COUNT(*) FROM effects WHERE message_id = $1",
		openTransactions: "SELECT COUNT(*) FROM pg_stat_activity WHERE backend_type = 'client backend'" +
			" AND pid <> pg_backend_pid() AND xact_start IS NOT NULL",
		commits: "SELECT COUNT(*) FROM pg_stat_activity WHERE state = 'active' AND query ILIKE 'commit%'",
	},
	mysqlFamily("mariadb", "INBOX_TEST_MARIADB", findMariaDB),
	mysqlFamily("mysql", "INBOX_TEST_MYSQL", findMySQL),
}

func mysqlFamily(name, variable string, find func(dir string, port int) (engine, error)) database {
	return database{
		name:             name,
		variable:         variable,
		driver:           "mysql",
		find:             find,
		schema:           mysql.Schema{},
		outbox:           wsql.MySQLQueueSchema{},
		open:             openMySQL,
		count:            "UPDATE counters SET n = n + 1 WHERE id = ?",
		record:           "INSERT INTO effects (message_id) VALUES (?)",
		recorded:         "SELECT COUNT(*) FROM effects WHERE message_id = ?",
		openTransactions: "SELECT COUNT(*) FROM information_schema.innodb_trx",
		commits:          "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'COMMIT%'",
	}
}

func databaseNamed(name string) (found database) {
	for _, database := range databases {
		if database.name == name {
			found = database
		}
	}
	return found
}

func openPgx(dsn string) (wsql.Beginner, func(), error) {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		return nil, nil, err
	}
	return wsql.BeginnerFromPgx(pool), pool.Close, nil
}

func openMySQL(dsn string) (wsql.Beginner, func(), error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, nil, err
	}
	return wsql.BeginnerFromStdSQL(db), func() { _ = db.Close() }, nil
}

// createTables returns what makes the tables besides the inbox's own. No key is unique: the inbox alone must prevent a second row.
func (d database) createTables() ([]string, error) {
	statements := []string{
		"CREATE TABLE counters (id INT PRIMARY KEY, n INT NOT NULL)",
		"CREATE TABLE effects (message_id VARCHAR(36) NOT NULL)",
		"CREATE INDEX effects_message ON effects (message_id)",
	}
	queries, err := d.outbox.SchemaInitializingQueries(wsql.SchemaInitializingQueriesParams{Topic: outgoing})
	for _, query := range queries {
		statements = append(statements, query.Query)
	}
	return statements, err
}
