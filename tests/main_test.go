package tests

import (
	"fmt"
	"os"
	"testing"
)

// programVariable makes the test binary one of programs, so that a test can start, and kill, processes of its own.
const programVariable = "INBOX_TEST_PROGRAM"

var programs = map[string]func() error{
	"rabbitmq-worker":  runRabbitMQWorker,
	"sqlbroker-worker": runSQLWorker,
}

func TestMain(m *testing.M) {
	name := os.Getenv(programVariable)
	if name == "" {
		os.Exit(m.Run())
	}
	if err := programs[name](); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}
