package mysql_test

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
	"github.com/watermill-inbox/inbox/mysql"
)

// server is where to find a server and what to tell the dialect about it.
type server struct {
	variable, fallback string
	mariaDB            bool
}

var servers = map[string]server{
	"mysql":   {"INBOX_TEST_MYSQL", "root@tcp(127.0.0.1:3307)/test", false},
	"mariadb": {"INBOX_TEST_MARIADB", "root@tcp(127.0.0.1:3306)/test", true},
}

// parameters are the variants of the DSN.
var parameters = map[string]map[string]string{
	"default":           nil,
	"clientFoundRows":   {"clientFoundRows": "true", "parseTime": "true"},
	"interpolateParams": {"interpolateParams": "true"},
	"not-strict":        {"sql_mode": "''"},
	"autocommit-off":    {"autocommit": "0"},
}

func TestConformance(t *testing.T) {
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			for variant := range parameters {
				t.Run(variant, func(t *testing.T) { inboxtest.TestSchema(t, database(server, variant)) })
			}
		})
	}
}

func TestDeferred(t *testing.T) {
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			for variant := range parameters {
				t.Run(variant, func(t *testing.T) { inboxtest.TestDeferred(t, database(server, variant)) })
			}
		})
	}
}

// database makes databases on a server.
func database(server server, variant string) inboxtest.Database {
	var outbox inboxtest.OutboxSchema = wsql.DefaultMySQLSchema{}
	if variant == "interpolateParams" {
		outbox = blobOutbox{}
	}
	return inboxtest.Database{
		Schema: func(table string) inbox.Schema { return mysql.Schema{MessagesTable: table, MariaDB: server.mariaDB} },
		Outbox: outbox,
		New:    func(t *testing.T) inboxtest.Instance { return newInstance(t, server, variant) },
		Features: inboxtest.Features{
			ConcurrentWriters:               true,
			NoWait:                          true,
			Isolations:                      []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelSerializable},
			EngineEndsTransactionOnDeadlock: true,
			AutocommitOff:                   variant == "autocommit-off",
			DDLCommits:                      true,
			SlowInsert:                      "INSERT INTO biz (who, step) SELECT 'slow', SLEEP(10)",
		},
		Mistakes: []inboxtest.Mistake{
			{Name: "varchar", Statements: []string{"ALTER TABLE inbox_messages MODIFY message_id VARCHAR(255) NOT NULL"}, Want: []string{"message_id", "varchar", "varbinary(512)"}},
			{Name: "short", Statements: []string{"ALTER TABLE inbox_messages MODIFY message_id VARBINARY(36) NOT NULL"}, Want: []string{"message_id", "varbinary(36)", "varbinary(512)"}},
			{Name: "prefix key", Statements: []string{"ALTER TABLE inbox_messages DROP PRIMARY KEY, ADD PRIMARY KEY (consumer, producer, message_id(36))"}, Want: []string{"primary key", "message_id(36)"}},
			{Name: "engine", Statements: []string{"ALTER TABLE inbox_messages MODIFY producer VARBINARY(200) NOT NULL, MODIFY message_id VARBINARY(200) NOT NULL, ENGINE = MyISAM, ROW_FORMAT = DEFAULT"}, Want: []string{"engine", "MyISAM", "InnoDB"}},
		},
		Variant: variant != "default",
	}
}

// blobOutbox has no JSON columns: with interpolateParams the driver sends binary strings, which MySQL does not take for JSON.
type blobOutbox struct{ wsql.DefaultMySQLSchema }

func (s blobOutbox) SchemaInitializingQueries(params wsql.SchemaInitializingQueriesParams) ([]wsql.Query, error) {
	queries, err := s.DefaultMySQLSchema.SchemaInitializingQueries(params)
	for n := range queries {
		queries[n].Query = strings.ReplaceAll(queries[n].Query, "JSON", "LONGBLOB")
	}
	return queries, err
}

func newInstance(t *testing.T, server server, variant string) inboxtest.Instance {
	t.Helper()
	root, config := newDatabase(t, server)
	namespace := config.DBName
	return inboxtest.Instance{
		Admin:     connect(t, config),
		Namespace: namespace,
		Open: func(t *testing.T, options inboxtest.Options) inboxtest.Pool {
			dsn := withParameters(config, parameters[variant])
			if options.LockTimeout > 0 {
				seconds := (options.LockTimeout + time.Second - 1) / time.Second
				dsn.Params["innodb_lock_wait_timeout"] = strconv.Itoa(int(seconds))
			}
			db, err := sql.Open("mysql", dsn.FormatDSN())
			if err != nil {
				t.Fatal(err)
			}
			db.SetMaxOpenConns(options.Connections)
			return inboxtest.StdPool(db)
		},
		Transactions: func(ctx context.Context) (int, error) {
			if server.mariaDB {
				return openInMariaDB(ctx, root, namespace)
			}
			return openInMySQL(ctx, root, namespace)
		},
		// A statement that is seen running is waiting: none of the suite takes long.
		Waiting: func(ctx context.Context) (n int, err error) {
			err = root.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE db = ? AND command = 'Query'", namespace).Scan(&n)
			return n, err
		},
	}
}

// newDatabase creates an empty database until the end of the test, and returns a pool outside of it.
func newDatabase(t testing.TB, server server) (root *sql.DB, config *mysqldriver.Config) {
	t.Helper()
	config, err := mysqldriver.ParseDSN(inboxtest.Server(t, server.variable, server.fallback, ping))
	if err != nil {
		t.Fatal(err)
	}
	root = connect(t, config)
	config.DBName = fmt.Sprintf("inboxtest_%x", rand.Uint64())
	exec(t, root, "CREATE DATABASE "+config.DBName)
	t.Cleanup(func() { exec(t, root, "DROP DATABASE "+config.DBName) })
	return root, config
}

func withParameters(config *mysqldriver.Config, parameters map[string]string) *mysqldriver.Config {
	config = config.Clone()
	if config.Params == nil {
		config.Params = map[string]string{}
	}
	maps.Copy(config.Params, parameters)
	return config
}

// connect opens a small pool that is closed at the end of the test.
func connect(t testing.TB, config *mysqldriver.Config) *sql.DB {
	t.Helper()
	db, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(3)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func exec(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func ping(dsn string) error {
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return db.PingContext(ctx)
}
