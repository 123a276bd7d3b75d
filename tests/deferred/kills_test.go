package deferred_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// killSize is how much of TestKills there is. It goes on until there were enough of both.
type killSize struct {
	messages, kills int

	handler time.Duration // at most; messages must last for about as long as the kills
	limit   time.Duration // the test fails after it; it is several times what two cores need
}

// sizeVariable selects one of killSizes. It is that of the other soak.
const sizeVariable = "INBOX_TEST_SOAK"

var killSizes = map[string]killSize{
	"":     {messages: 2000, kills: 5, handler: 60 * time.Millisecond, limit: 2 * time.Minute},
	"full": {messages: 10_000, kills: 20, handler: 60 * time.Millisecond, limit: 10 * time.Minute},
}

const (
	killTopic      = "kills"
	killLease      = 2 * time.Second
	killAttempts   = 100
	killAfter      = 300 * time.Millisecond // after the first ack of the youngest worker
	workerCount    = 4
	workerInFlight = 6
	backlog        = 500 // messages that wait, as a rule, so that the killed ones have some
	receivedAtOnce = 200
)

// runWorker is one of several processes that share a topic.
func runWorker(config childConfig) error {
	d := databases.All[config.Database]
	pool, closePool, err := d.Open(config.DSN, workerInFlight+2)
	if err != nil {
		return err
	}
	defer closePool()
	size := killSizes[os.Getenv(sizeVariable)]
	n, err := newNode(pool, d.Schema, config.Node, func(*message.Message) error {
		time.Sleep(rand.N(size.handler))
		return nil
	}, childLogger())
	if err != nil {
		return err
	}
	var acked sync.Once
	n.router.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			go func() {
				<-msg.Acked()
				acked.Do(func() { say("acked") })
			}()
			return h(msg)
		}
	})
	if err := n.start(); err != nil {
		return err
	}
	awaitStop()
	return n.stop()
}

// worker is such a process, seen from the test.
type worker struct {
	*child
	acked chan struct{} // closed at its first ack
}

// kills is one TestKills on one database.
type kills struct {
	*lab
	killSize
	living   []worker // the youngest last
	killed   int
	received int
	filled   chan struct{} // closed when there is a backlog
	ended    chan struct{} // closed when nothing more is received
	err      error         // of the receptions
}

// TestKills kills workers under load, one after the other, and counts in the database what became of the messages.
func TestKills(t *testing.T) {
	size, known := killSizes[os.Getenv(sizeVariable)]
	require.True(t, known, `%s is %q, it may be "full" or not set`, sizeVariable, os.Getenv(sizeVariable))
	for _, name := range []string{"postgres-pgx", "mysql", "mariadb"} {
		t.Run(name, func(t *testing.T) {
			k := &kills{lab: newLab(t, name), killSize: size, filled: make(chan struct{}), ended: make(chan struct{})}
			k.play()
		})
	}
}

func (k *kills) start() {
	k.Helper()
	w := worker{acked: make(chan struct{})}
	w.child = k.child(childConfig{Role: "worker", Node: nodeConfig{
		Lease: killLease, MaxAttempts: killAttempts, MaxInFlight: workerInFlight, Poll: 200 * time.Millisecond, Topics: []string{killTopic},
	}}, func(line string) {
		if line == "acked" {
			close(w.acked)
		}
	})
	k.living = append(k.living, w)
}

func (k *kills) play() {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), k.limit)
	k.Cleanup(func() {
		cancel()
		<-k.ended
		for _, w := range k.living {
			w.kill()
			if k.Failed() {
				k.Logf("a worker's errors:\n%s", w.stderr.String())
			}
		}
	})
	enough := make(chan struct{})
	go k.receive(ctx, enough)
	select {
	case <-k.filled:
	case <-k.ended:
		require.FailNow(k, "nothing was received", "%v", k.err)
	}
	for range workerCount {
		k.start()
	}
	started := time.Now()
	for ; k.killed < k.kills; k.killed++ {
		k.killOne(ctx)
	}
	killing, meanwhile := time.Since(started), len(k.identities())
	close(enough)
	<-k.ended
	require.NoError(k, k.err)
	fed := time.Now()

	k.eventually("the queue to be empty", time.Until(began.Add(k.limit)), func() bool { return undecided(k.counted(consumer)) == 0 })
	k.Logf("%.0f messages per second while workers were killed, then %.0f",
		float64(meanwhile)/killing.Seconds(), float64(k.received-meanwhile)/time.Since(started.Add(killing)).Seconds())
	drained := time.Since(fed)
	for _, w := range k.living {
		require.NoError(k, w.stop())
	}
	k.living = nil
	k.check(time.Since(began), drained)
}

// receive stores messages as long as not all of them are, or kills are missing, and never lets many of them wait.
func (k *kills) receive(ctx context.Context, enough <-chan struct{}) {
	defer close(k.ended)
	fill := sync.OnceFunc(func() { close(k.filled) })
	for k.received < k.messages || !closed(enough) {
		if k.err = ctx.Err(); k.err != nil {
			return
		}
		counts, err := k.store.Count(ctx)
		if err != nil {
			k.err = err
			return
		}
		if len(counts) > 0 && counts[0].Pending >= backlog {
			fill()
			time.Sleep(20 * time.Millisecond)
			continue
		}
		msgs := make([]*message.Message, receivedAtOnce)
		for n := range msgs {
			msgs[n] = newMessage(fmt.Sprintf("message-%d", k.received+n))
		}
		outcomes, err := k.receiver.Receive(ctx, killTopic, msgs...)
		if err == nil && slices.ContainsFunc(outcomes, func(o deferred.ReceiveOutcome) bool { return o != deferred.Stored }) {
			err = fmt.Errorf("not all were stored: %v", outcomes)
		}
		if err != nil {
			k.err = err
			return
		}
		k.received += len(msgs)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// killOne kills any worker a little after the youngest has begun to work, and starts another one.
func (k *kills) killOne(ctx context.Context) {
	k.Helper()
	youngest := k.living[len(k.living)-1]
	select {
	case <-youngest.acked:
	case <-youngest.ended:
		require.FailNow(k, "a worker ended by itself", "%v\n%s", youngest.err, youngest.stderr.String())
	case <-k.ended:
		require.FailNow(k, "no more messages", "%v", k.err)
	case <-ctx.Done():
		require.FailNow(k, "too late", "after %d kills", k.killed)
	}
	time.Sleep(killAfter)
	n := rand.IntN(len(k.living))
	victim := k.living[n]
	select {
	case <-victim.ended:
		require.FailNow(k, "a worker ended by itself", "%v\n%s", victim.err, victim.stderr.String())
	default:
	}
	victim.kill()
	k.living = slices.Delete(k.living, n, n+1)
	k.start()
}

// check looks at everything after all has ended.
func (k *kills) check(took, drained time.Duration) {
	effects, identities := k.effects(), k.identities()
	attempts := k.counts("SELECT message_id, MAX(attempt) FROM effects GROUP BY message_id")
	redelivered, most, doubled, missing := 0, 0, 0, 0
	for n := range k.received {
		id := fmt.Sprintf("message-%d", n)
		doubled += max(0, effects[id]-1)
		if effects[id] == 0 {
			missing++
		}
		if attempts[id] > 1 {
			redelivered++
		}
		most = max(most, attempts[id])
	}
	k.Logf("%d kills, %d messages, %d of them at a later attempt than the first (at most the %d.), %d doubled, %d without effect; %.1f s, of these %.1f s after the last reception",
		k.killed, k.received, redelivered, most, doubled, missing, took.Seconds(), drained.Seconds())
	require.Zero(k, doubled, "doubled effects")
	require.Zero(k, missing, "messages without an effect")
	require.Equal(k, k.received, len(identities), "processed = received")
	require.Empty(k, k.list(deferred.Filter{}), "nothing is dead or left in the queue")

	// The test is worth nothing unless these happened.
	require.GreaterOrEqual(k, k.killed, k.kills)
	require.Positive(k, redelivered)
}
