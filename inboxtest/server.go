package inboxtest

import (
	"os"
	"testing"
)

// Unavailable is the value of a server's variable where that server cannot be had at all.
const Unavailable = "unavailable"

// Server returns the address of a server that tests need: the value of the environment variable, or fallback. It skips the test,
// saying so, if the server does not answer, if the variable says "unavailable", or with -short. With INBOX_TEST_ALL=1 in the environment
// a server that does not answer fails the test.
func Server(t testing.TB, variable, fallback string, ping func(address string) error) string {
	t.Helper()
	if testing.Short() {
		t.Skipf("%s is not tested: -short", variable)
	}
	address := os.Getenv(variable)
	if address == "" {
		address = fallback
	}
	if address == Unavailable {
		t.Skipf("#####  NOT TESTED: %s=%s  #####", variable, Unavailable)
	}
	if err := ping(address); err != nil {
		complain := t.Skipf
		if os.Getenv("INBOX_TEST_ALL") == "1" {
			complain = t.Fatalf
		}
		complain("no server at %s: %v: run `make up`, or set %s to the address of one", address, err, variable)
	}
	return address
}
