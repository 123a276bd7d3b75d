package deferred_test

import (
	"os"
	"testing"
)

// TestMain keeps Watermill's stress test short: three suites at once, unless STRESS_TEST_COUNT says otherwise.
func TestMain(m *testing.M) {
	const variable = "STRESS_TEST_COUNT"
	if os.Getenv(variable) == "" {
		os.Setenv(variable, "3")
	}
	os.Exit(m.Run())
}
