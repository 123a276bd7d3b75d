package deferred_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

const (
	exitTopic    = "exits"
	exitAttempts = 3
	exitCode     = 3
)

// Messages to runExiting.
const (
	deadly = "deadly" // ends the process
	slow   = "slow"   // is handled until shutdown
)

// runExiting is a process whose handler ends it.
func runExiting(config childConfig) error {
	d := databases.All[config.Database]
	pool, closePool, err := d.Open(config.DSN, 8)
	if err != nil {
		return err
	}
	defer closePool()
	n, err := newNode(pool, d.Schema, config.Node, func(msg *message.Message) error {
		say("started %s", msg.UUID)
		switch msg.UUID {
		case deadly:
			os.Exit(exitCode)
		case slow:
			<-msg.Context().Done()
		}
		return msg.Context().Err()
	}, childLogger())
	if err != nil {
		return err
	}
	if err := n.start(); err != nil {
		return err
	}
	awaitStop()
	return n.stop()
}

// exiting is that process and what it said, over all its restarts.
type exiting struct {
	*lab
	mu      sync.Mutex
	started []string // ids in the order of their handlers' starts
}

func onEachDatabaseAtOnce(t *testing.T, names []string, test func(t *testing.T, name string)) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name)
		})
	}
}

func (e *exiting) start() *child {
	e.Helper()
	return e.child(childConfig{Role: "exits", Node: nodeConfig{
		Lease: 1500 * time.Millisecond, MaxAttempts: exitAttempts, MaxInFlight: 5, Poll: 100 * time.Millisecond, Topics: []string{exitTopic},
	}}, func(line string) {
		if id, ok := strings.CutPrefix(line, "started "); ok {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.started = append(e.started, id)
		}
	})
}

func (e *exiting) startsOf(id string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, other := range e.started {
		if other == id {
			n++
		}
	}
	return n
}

func (e *exiting) receive(ids ...string) {
	e.Helper()
	msgs := make([]*message.Message, len(ids))
	for n, id := range ids {
		msgs[n] = newMessage(id)
	}
	outcomes, err := e.receiver.Receive(context.Background(), exitTopic, msgs...)
	require.NoError(e, err)
	require.Equal(e, slices.Repeat([]deferred.ReceiveOutcome{deferred.Stored}, len(ids)), outcomes)
}

// TestT32HandlerEndsProcess restarts a process whose handler ends it. The message is dead after its attempts, and those behind it are processed.
func TestT32HandlerEndsProcess(t *testing.T) {
	onEachDatabaseAtOnce(t, []string{"postgres-pgx", "mysql", "mariadb", "sqlite"}, func(t *testing.T, name string) {
		e := &exiting{lab: newLab(t, name)}
		healthy := []string{"healthy-1", "healthy-2", "healthy-3", "healthy-4"}
		e.receive(slices.Insert(slices.Clone(healthy), 0, deadly)...)

		process, exits := e.start(), 0
		e.eventually("the deadly message to be dead and the others processed", time.Minute, func() bool {
			select {
			case <-process.ended:
				exits++
				require.Equal(e, exitCode, process.command.ProcessState.ExitCode(), process.stderr.String())
				require.LessOrEqual(e, e.startsOf(deadly), exitAttempts, "starts of the deadly handler")
				process = e.start()
			default:
			}
			counts := e.counted(consumer)
			return undecided(counts) == 0 && counts.Dead == 1
		})
		require.NoError(e, process.stop())

		require.Equal(e, exitAttempts, e.startsOf(deadly), "starts of the deadly handler")
		require.Equal(e, exitAttempts, exits)
		dead := e.list(deferred.Filter{})[deadly]
		require.Equal(e, exitAttempts, dead.Attempts)
		require.Contains(e, dead.Reason, "the worker disappeared")
		effects, identities := e.effects(), e.identities()
		require.Len(e, effects, len(healthy))
		require.Len(e, identities, len(healthy))
		for _, id := range healthy {
			require.Equal(e, 1, effects[id], id)
			require.LessOrEqual(e, e.startsOf(id), 2, "only the first exit can take neighbours along")
		}
	})
}

// TestT32CleanShutdownIsNoAttempt stops a process more often than there are attempts.
func TestT32CleanShutdownIsNoAttempt(t *testing.T) {
	onEachDatabaseAtOnce(t, []string{"postgres-pgx", "mysql", "mariadb", "sqlite"}, func(t *testing.T, name string) {
		e := &exiting{lab: newLab(t, name)}
		e.receive(slow)
		for shutdown := 1; shutdown <= exitAttempts+1; shutdown++ {
			process := e.start()
			e.eventually("the handler to start", 30*time.Second, func() bool { return e.startsOf(slow) == shutdown })
			require.NoError(e, process.stop())
			left := e.list(deferred.Filter{})[slow]
			require.Equal(e, deferred.StatePending, left.State)
			require.Zero(e, left.Attempts)
		}
		require.Empty(e, e.effects())
	})
}
