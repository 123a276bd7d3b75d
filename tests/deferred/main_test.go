package deferred_test

import (
	"fmt"
	"os"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
)

// childVariable makes the test binary a process of the service, and configures it.
const childVariable = "INBOX_TEST_DEFERRED_CHILD"

// TestMain keeps Watermill's stress test short: three suites at once, unless STRESS_TEST_COUNT says otherwise.
func TestMain(m *testing.M) {
	_ = mysqldriver.SetLogger(&mysqldriver.NopLogger{}) // it writes every broken connection to the standard error
	if config := os.Getenv(childVariable); config != "" {
		if err := runChild(config); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		return
	}
	const variable = "STRESS_TEST_COUNT"
	if os.Getenv(variable) == "" {
		os.Setenv(variable, "3")
	}
	os.Exit(m.Run())
}
