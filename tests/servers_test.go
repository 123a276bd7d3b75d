package tests

// Where the servers of the tests answer unless INBOX_TEST_POSTGRES, INBOX_TEST_MYSQL and INBOX_TEST_MARIADB say otherwise.
const (
	postgresDSN = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	mysqlDSN    = "root@tcp(127.0.0.1:3307)/test"
	mariadbDSN  = "root@tcp(127.0.0.1:3306)/test"
)
