package tests

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	driver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/mysql"
	"github.com/watermill-inbox/inbox/postgres"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// stockDatabase is a database of the inventory service.
type stockDatabase struct {
	variable, address string
	driver            string // of database/sql, for the test's own statements

	schema  inbox.Schema
	outbox  wsql.SchemaAdapter
	offsets wsql.OffsetsAdapter

	named func(address, database string) (string, error)
	open  func(dsn string) (pool wsql.Beginner, closePool func(), err error) // as the service does
	drop  string

	take, record     string                        // statements of the handler
	logOutbox        []string                      // make a trigger that logs every row of the outbox in outbox_ever, because relayed rows are deleted
	openTransactions func(db *sql.DB) (int, error) // in this database
}

// The outbox has the schema that the example uses and explains.
var stockDatabases = map[string]stockDatabase{
	"postgres": {
		variable: "INBOX_TEST_POSTGRES",
		address:  postgresDSN,
		driver:   "pgx",
		schema:   postgres.Schema{},
		outbox:   wsql.PostgreSQLQueueSchema{SubscribeBatchSize: 1},
		offsets:  wsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true},
		named:    nameInPostgres,
		open:     openStockPgx,
		drop:     "DROP DATABASE %s WITH (FORCE)",
		take:     "UPDATE stock SET reserved = reserved + $1 WHERE article = $2",
		record:   "INSERT INTO reservations (order_id) VALUES ($1)",
		logOutbox: []string{
			"CREATE FUNCTION log_outbox() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN INSERT INTO outbox_ever VALUES (NEW.uuid); RETURN NEW; END$$",
			"CREATE TRIGGER log_outbox AFTER INSERT ON watermill_outbox FOR EACH ROW EXECUTE FUNCTION log_outbox()",
		},
		openTransactions: func(db *sql.DB) (open int, err error) {
			err = db.QueryRow("SELECT COUNT(*) FROM pg_stat_activity" +
				" WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL").Scan(&open)
			return open, err
		},
	},
	"mysql":   mysqlFamily("INBOX_TEST_MYSQL", mysqlDSN),
	"mariadb": mysqlFamily("INBOX_TEST_MARIADB", mariadbDSN),
}

func mysqlFamily(variable, address string) stockDatabase {
	return stockDatabase{
		variable: variable,
		address:  address,
		driver:   "mysql",
		schema:   mysql.Schema{},
		outbox:   wsql.MySQLQueueSchema{SubscribeBatchSize: 1},
		offsets:  wsql.MySQLQueueOffsetsAdapter{DeleteOnAck: true},
		named:    nameInMySQL,
		open:     openStockMySQL,
		drop:     "DROP DATABASE %s",
		take:     "UPDATE stock SET reserved = reserved + ? WHERE article = ?",
		record:   "INSERT INTO reservations (order_id) VALUES (?)",
		logOutbox: []string{
			"CREATE TRIGGER log_outbox AFTER INSERT ON watermill_outbox FOR EACH ROW INSERT INTO outbox_ever VALUES (NEW.uuid)",
		},
		openTransactions: openInnoDBTransactions,
	}
}

var activeInnoDBTransaction = regexp.MustCompile(`(?s)---TRANSACTION \d+, ACTIVE.*?thread id (\d+)`)

// openInnoDBTransactions reads a report, because information_schema.innodb_trx is refreshed only when nobody on the server has read it
// for 100 ms.
func openInnoDBTransactions(db *sql.DB) (open int, err error) {
	var engine, name, report string
	if err := db.QueryRow("SHOW ENGINE INNODB STATUS").Scan(&engine, &name, &report); err != nil {
		return 0, err
	}
	for _, transaction := range activeInnoDBTransaction.FindAllStringSubmatch(report, -1) {
		var ours int
		query := "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id = " + transaction[1]
		if err := db.QueryRow(query).Scan(&ours); err != nil {
			return 0, err
		}
		open += ours
	}
	return open, nil
}

func nameInPostgres(address, database string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	u.Path = "/" + database
	return u.String(), nil
}

func nameInMySQL(address, database string) (string, error) {
	config, err := driver.ParseDSN(address)
	if err != nil {
		return "", err
	}
	config.DBName = database
	config.ReadTimeout = 10 * time.Second
	return config.FormatDSN(), nil
}

func openStockPgx(dsn string) (wsql.Beginner, func(), error) {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		return nil, nil, err
	}
	return wsql.BeginnerFromPgx(pool), pool.Close, nil
}

func openStockMySQL(dsn string) (wsql.Beginner, func(), error) {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return nil, nil, err
	}
	return wsql.BeginnerFromStdSQL(db), func() { _ = db.Close() }, nil
}

const (
	stockArticles = 10 // rows that the handlers of all workers compete for
	orderQuantity = 1  // of each order
)

// create makes an empty database for one run.
func (d stockDatabase) create(t *testing.T) (dsn string, db *sql.DB) {
	t.Helper()
	address := inboxtest.Server(t, d.variable, d.address, databases.Ping(d.driver))
	admin, err := sql.Open(d.driver, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close() })

	name := fmt.Sprintf("inbox_rabbitmq_%d", time.Now().UnixNano())
	_, err = admin.Exec("CREATE DATABASE " + name)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(fmt.Sprintf(d.drop, name))
		require.NoError(t, err)
	})

	dsn, err = d.named(address, name)
	require.NoError(t, err)
	db, err = sql.Open(d.driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{
		"CREATE TABLE stock (article INT PRIMARY KEY, reserved INT NOT NULL)",
		"CREATE TABLE reservations (order_id VARCHAR(36) NOT NULL)", // no key: the inbox alone must prevent a second row
		"CREATE TABLE outbox_ever (uuid VARCHAR(36) NOT NULL)",
	} {
		_, err := db.Exec(statement)
		require.NoError(t, err)
	}
	for article := range stockArticles {
		_, err := db.Exec(fmt.Sprintf("INSERT INTO stock VALUES (%d, 0)", article))
		require.NoError(t, err)
	}
	return dsn, db
}

// reserve is the handler.
func (d stockDatabase) reserve(msg *message.Message, tx wsql.Tx) ([]*message.Message, error) {
	result, err := tx.ExecContext(msg.Context(), d.take, orderQuantity, articleOf(msg))
	if err != nil {
		return nil, err
	}
	if updated, err := result.RowsAffected(); err != nil || updated != 1 {
		return nil, errors.Join(err, fmt.Errorf("%d rows of stock updated", updated))
	}
	if _, err := tx.ExecContext(msg.Context(), d.record, msg.UUID); err != nil {
		return nil, err
	}
	// A random UUID: a second run of the handler would produce another message, and be seen.
	reserved := message.NewMessage(watermill.NewUUID(), []byte(`{}`))
	reserved.Metadata.Set("order_id", msg.UUID)

	delivery := msg.Context().Value(traceKey{}).(*trace)
	delivery.ran = true
	delivery.hold()
	return []*message.Message{reserved}, nil
}

func articleOf(order *message.Message) int {
	return int(order.UUID[len(order.UUID)-1]) % stockArticles
}

func countRows(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(query).Scan(&n), query)
	return n
}
