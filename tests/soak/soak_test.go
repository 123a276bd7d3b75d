package soak

import (
	"fmt"
	"os"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/inboxtest"
)

// consumerVariable makes the test binary a consumer process, and configures it.
const consumerVariable = "INBOX_TEST_SOAK_CONSUMER"

func TestMain(m *testing.M) {
	_ = mysqldriver.SetLogger(&mysqldriver.NopLogger{}) // it writes every broken connection to the standard error
	config := os.Getenv(consumerVariable)
	if config == "" {
		os.Exit(m.Run())
	}
	if err := runConsumer(config); err != nil {
		fmt.Fprintln(os.Stderr, "consumer:", err)
		os.Exit(1)
	}
}

// size of a soak. It goes on until there were enough of all three.
type size struct {
	messages, kills, restarts int

	limit time.Duration // the test fails after it; it is several times what two cores need
}

// sizeVariable selects one of sizes.
const sizeVariable = "INBOX_TEST_SOAK"

var sizes = map[string]size{
	"":     {messages: 3000, kills: 5, restarts: 2, limit: 3 * time.Minute},
	"full": {messages: 10_000, kills: 20, restarts: 5, limit: 15 * time.Minute},
}

const (
	consumerCount = 4                      // processes
	copiesOfEach  = 3                      // at least
	killAfter     = 200 * time.Millisecond // after the first ack of the youngest consumer
	restartAfter  = 5 * time.Second        // after the server has begun to answer

	commitsAtCrash = 3               // at least, so that one of them gets no answer
	commitsWithin  = 2 * time.Second // the database waits so long for them before it crashes
)

// TestSoak kills consumers and restarts the database under load, and counts in the database what became of the messages.
func TestSoak(t *testing.T) {
	size, known := sizes[os.Getenv(sizeVariable)]
	require.True(t, known, `%s is %q, it may be "full" or not set`, sizeVariable, os.Getenv(sizeVariable))
	for _, database := range databases {
		t.Run(database.name, func(t *testing.T) {
			address := inboxtest.Server(t, "INBOX_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672/", pingRabbitMQ)
			newRun(t, database, address, size).play()
		})
	}
}
