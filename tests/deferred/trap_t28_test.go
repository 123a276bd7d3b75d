package deferred_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/deferred"
	"github.com/watermill-inbox/inbox/tests/internal/databases"
)

// The messages of the script. Each run has its own, with the run's number before the name.
const (
	good      = "good"      // processed at once
	fails     = "fails"     // its first attempt fails
	second    = "second"    // has the same ordering key, so it waits
	lost      = "lost"      // was with a worker that disappeared
	exhausted = "exhausted" // so it was at its last attempt
	last      = "last"      // has one attempt left, and fails
	late      = "late"      // is with a handler at Close
	unread    = "unread"    // in a topic of its own, claimed and never handed out
)

const scriptAttempts = 20

// dies are the messages that end dead.
var dies = []string{exhausted, last}

// TestT28KillAtEveryStatement kills a process at each of its SQL statements, in as many runs: before or after it, with INBOX_TEST_SOAK=full both. Afterwards the service runs without a kill,
// and every message that was received is processed once or dead.
func TestT28KillAtEveryStatement(t *testing.T) {
	for _, name := range []string{"postgres-std", "mysql", "mariadb", sqliteInC} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &scripts{lab: newLab(t, name), killed: map[string]int{}, stored: map[string]bool{}}
			began := time.Now()
			l.receiveForNobody()
			l.killAll()
			killed := time.Now()
			l.retryPublishing()
			l.restart()
			l.check()
			t.Logf("%d processes killed at %d kinds of points in %.1f s; restart and checks took %.1f s",
				sum(l.killed), len(l.killed), killed.Sub(began).Seconds(), time.Since(killed).Seconds())
		})
	}
}

// scripts are the runs on one database.
type scripts struct {
	*lab
	runs int

	mu     sync.Mutex
	killed map[string]int  // how many runs ended at each point
	stored map[string]bool // ids that a run's Receiver reported as stored
}

func idOf(run int, name string) string { return fmt.Sprintf("%d-%s", run, name) }
func topicOf(run int) string           { return fmt.Sprintf("topic-%d", run) }
func unreadTopicOf(run int) string     { return fmt.Sprintf("unread-%d", run) }
func nameOf(id string) string          { _, name, _ := strings.Cut(id, "-"); return name }
func diesOf(id string) bool            { return slices.Contains(dies, nameOf(id)) }
func failsNow(id string, attempt int) bool {
	return nameOf(id) == last || nameOf(id) == fails && attempt == 1
}

// scriptOf returns the messages that a process receives: at its start in its two topics, and at its end.
func scriptOf(run int) (atOnce, unreads, atEnd []*message.Message) {
	key := idOf(run, "key")
	return []*message.Message{
			newMessage(idOf(run, good)), newKeyedMessage(idOf(run, fails), key), newKeyedMessage(idOf(run, second), key),
		},
		[]*message.Message{newMessage(idOf(run, unread))},
		[]*message.Message{newMessage(idOf(run, late))}
}

func scriptNode(run int) nodeConfig {
	return nodeConfig{Lease: 900 * time.Millisecond, MaxAttempts: scriptAttempts, MaxInFlight: 5, Poll: 400 * time.Millisecond, Topics: []string{topicOf(run)}}
}

// runScript is the process: it receives, processes, and shuts down, and on the way executes every kind of statement that there is.
func runScript(config childConfig) error {
	d := databases.All[config.Database]
	counter, err := countStatements(d.Driver, config.DSN, func(n int, point string) {
		if n == config.KillAt || point == config.KillPoint {
			say("killed %s", point)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until it arrives
		}
	})
	if err != nil {
		return err
	}
	db := sql.OpenDB(counter)
	defer db.Close()
	db.SetMaxOpenConns(10)
	db.SetMaxIdleConns(10)
	handling := make(chan struct{}, 100)
	n, err := newNode(wsql.BeginnerFromStdSQL(db), d.Schema, config.Node, func(msg *message.Message) error {
		if nameOf(msg.UUID) == late {
			handling <- struct{}{}
			<-msg.Context().Done()
			return msg.Context().Err()
		}
		return failScripted(msg)
	}, childLogger())
	if err != nil {
		return err
	}
	// It looks without being counted, and without being SQLite's writer.
	quiet, closeQuiet, err := d.Open(strings.Replace(config.DSN, "&_txlock=immediate", "", 1), 1)
	if err != nil {
		return err
	}
	defer closeQuiet()
	store, err := deferred.NewStore(quiet, d.Schema, deferred.Pending, nil)
	if err != nil {
		return err
	}

	atOnce, unreads, atEnd := scriptOf(config.Run)
	topic, unreadTopic := topicOf(config.Run), unreadTopicOf(config.Run)
	receive := func(topic string, msgs ...*message.Message) error {
		outcomes, err := n.receiver.Receive(context.Background(), topic, msgs...)
		for i, outcome := range outcomes {
			say("%s %s", outcome, msgs[i].UUID)
		}
		return err
	}
	if err := errors.Join(receive(topic, atOnce...), receive(unreadTopic, unreads...)); err != nil {
		return err
	}
	if _, err := n.subscriber.Subscribe(context.Background(), unreadTopic); err != nil {
		return err
	}
	if err := n.start(); err != nil {
		return err
	}
	err = await(func() bool {
		counts, err := store.Count(context.Background())
		return err == nil && counter.hasPassed("after commit of renew") && slices.ContainsFunc(counts, func(c deferred.Count) bool {
			return c.Consumer == consumer && c.Topic == topic && undecided(c) == 0
		})
	})
	if err != nil {
		return err
	}
	if err := receive(topic, atEnd...); err != nil {
		return err
	}
	<-handling
	if err := n.stop(); err != nil {
		return err
	}
	say("not killed")
	return nil
}

func failScripted(msg *message.Message) error {
	if attempt, _ := deferred.Attempt(msg); failsNow(msg.UUID, attempt) {
		return errors.New("it fails")
	}
	return nil
}

// await is for children.
func await(done func() bool) error {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if done() {
			return nil
		}
	}
	return errors.New("the script takes too long")
}

// nobody is a consumer that does not run any more.
const nobody = "nobody"

func (s *scripts) receiveForNobody() {
	_, err := s.newReceiver(nobody).Receive(context.Background(), topicOf(1), newMessage("0-pending"), newMessage("0-claimed"))
	require.NoError(s, err)
	s.exec(s.leftClaimed("0-claimed", 7))
}

// leftClaimed makes a message what a worker leaves that disappeared.
func (s *scripts) leftClaimed(id string, attempts int) string {
	return fmt.Sprintf("UPDATE inbox_pending SET state = %d, token = 1, due_at = 1, attempts = %d WHERE %s", deferred.StateClaimed, attempts, s.hasID(id))
}

func (s *scripts) hasID(id string) string {
	if s.Driver == "pgx" {
		return fmt.Sprintf(`message_id = '\x%x'`, id)
	}
	return fmt.Sprintf("message_id = X'%x'", id)
}

// killAll runs the script, killed at each point in turn, until one run comes to its end. The order of statements is not the same in all runs, so kinds
// of points at which no process was killed get runs of their own. A few runs share the machine, because they wait a lot.
func (s *scripts) killAll() {
	var next, whole atomic.Int64
	s.several(func() bool {
		n := int(next.Add(1))
		if !s.kill(childConfig{Run: n, KillAt: s.point(n)}) {
			whole.Store(int64(n))
		}
		return whole.Load() == 0
	})
	s.runs = int(next.Load())
	for range 3 { // a slow machine may come to the script's end without a renewal or a release
		missing := s.notKilled()
		s.several(func() bool {
			todo := int(next.Add(1)) - s.runs - 1
			if todo < len(missing) {
				s.kill(childConfig{Run: s.runs + todo + 1, KillPoint: missing[todo]})
			}
			return todo < len(missing)
		})
		s.runs += len(missing)
		next.Store(int64(s.runs))
	}
}

// point numbers what the n-th run is killed at: every point, or else every statement, in turn before and after it.
func (s *scripts) point(n int) int {
	if os.Getenv(sizeVariable) == "full" {
		return n
	}
	return 2*n - n%2
}

func (s *scripts) several(run func() (more bool)) {
	s.Helper()
	processes := 4
	if strings.HasPrefix(s.Driver, "sqlite") {
		processes = 2 // they wait for each other
	}
	var group sync.WaitGroup
	for range processes {
		group.Go(func() {
			for !s.Failed() && run() {
			}
		})
	}
	group.Wait()
	if s.Failed() {
		s.FailNow()
	}
}

// notKilled returns the kinds of points that no run was killed at.
func (s *scripts) notKilled() (points []string) {
	for _, kind := range kinds {
		points = append(points, "before "+kind.name, "after "+kind.name)
		if !kind.inside {
			points = append(points, "before commit of "+kind.name, "after commit of "+kind.name)
		}
	}
	return slices.DeleteFunc(points, func(point string) bool { return s.killed[point] > 0 })
}

// kill reports false if the run came to its end.
func (s *scripts) kill(config childConfig) (killed bool) {
	config.Role, config.Database, config.DSN, config.Node = "script", s.name, s.dsn, scriptNode(config.Run)
	run := config.Run
	ctx := context.Background()
	_, err := s.receiver.Receive(ctx, topicOf(run), newMessage(idOf(run, lost)), newMessage(idOf(run, exhausted)), newMessage(idOf(run, last)))
	if err != nil {
		s.Errorf("run %d: %v", run, err)
		return false
	}
	for _, statement := range []string{
		s.leftClaimed(idOf(run, lost), 1),
		s.leftClaimed(idOf(run, exhausted), scriptAttempts),
		fmt.Sprintf("UPDATE inbox_pending SET attempts = %d WHERE %s", scriptAttempts-1, s.hasID(idOf(run, last))),
	} {
		if _, err := s.db.Exec(statement); err != nil {
			s.Errorf("run %d: %v", run, err)
			return false
		}
	}
	c, err := startChild(config, func(line string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if id, ok := strings.CutPrefix(line, deferred.Stored.String()+" "); ok {
			s.stored[id] = true
		} else if where, ok := strings.CutPrefix(line, "killed "); ok {
			s.killed[where]++
			killed = true
		}
	})
	if err != nil {
		s.Errorf("run %d: %v", run, err)
		return false
	}
	select {
	case <-c.ended:
	case <-time.After(2 * time.Minute):
		c.kill()
		s.Errorf("run %d hangs", run)
	}
	if !killed && c.err != nil {
		s.Errorf("run %d: %v\n%s", run, c.err, c.stderr.String())
	}
	return killed
}

// retryPublishing is what publishers do that got no answer. It makes the received messages of every run the same.
func (s *scripts) retryPublishing() {
	for run := 1; run <= s.runs; run++ {
		atOnce, unreads, atEnd := scriptOf(run)
		for topic, msgs := range map[string][]*message.Message{topicOf(run): append(atOnce, atEnd...), unreadTopicOf(run): unreads} {
			outcomes, err := s.receiver.Receive(context.Background(), topic, msgs...)
			require.NoError(s, err)
			for i, outcome := range outcomes {
				require.False(s, outcome == deferred.Stored && s.stored[msgs[i].UUID], "%s was reported as stored, and is gone", msgs[i].UUID)
			}
		}
	}
}

// restart runs the service until nothing is left to do, for some runs at a time.
func (s *scripts) restart() {
	together := 20
	if strings.HasPrefix(s.Driver, "sqlite") {
		together = 4 // all of their subscriptions compete to be the one writer
	}
	for from := 1; from <= s.runs; from += together {
		config := scriptNode(0)
		config.Lease, config.Topics = 3*time.Second, nil
		for run := from; run < from+together; run++ {
			config.Topics = append(config.Topics, topicOf(run), unreadTopicOf(run))
		}
		s.restartFor(config)
	}
	require.Zero(s, undecided(s.counted(consumer)), "neither processed nor dead")
}

func (s *scripts) restartFor(config nodeConfig) {
	pool, closePool, err := s.Open(s.dsn, 8)
	require.NoError(s, err)
	defer closePool()
	n, err := newNode(pool, s.Schema, config, failScripted, nil)
	require.NoError(s, err)
	require.NoError(s, n.start())
	s.eventually("all messages to be processed or dead", time.Minute, func() bool {
		return undecided(s.counted(consumer, config.Topics...)) == 0
	})
	require.NoError(s, n.stop())
}

// check looks at everything after all has ended.
func (s *scripts) check() {
	effects, identities, dead := s.effects(), s.identities(), s.list(deferred.Filter{Consumer: consumer})
	received := 0
	for run := 1; run <= s.runs; run++ {
		for _, name := range []string{good, fails, second, lost, exhausted, last, late, unread} {
			received++
			id, want := idOf(run, name), 1
			if diesOf(id) {
				want = 0
				require.Equal(s, deferred.StateDead, dead[id].State, id)
				require.NotEmpty(s, dead[id].Reason, id)
			}
			require.Equal(s, want, effects[id], "effects of %s", id)
			require.Equal(s, want, identities[id], "identities of %s", id)
		}
	}
	require.Equal(s, received, len(identities)+len(dead), "processed + dead = received")

	require.Equal(s, deferred.Count{Pending: 1, Claimed: 1}, s.counted(nobody), "rows of an unknown consumer")
	require.Equal(s, 7, s.list(deferred.Filter{Consumer: nobody})["0-claimed"].Attempts)

	// The test is worth nothing unless processes died at all of these.
	require.Empty(s, s.notKilled(), "nothing was killed at these points")
}

func sum(counts map[string]int) (n int) {
	for _, count := range counts {
		n += count
	}
	return n
}
