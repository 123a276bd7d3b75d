package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
)

// sqlCaseLimit bounds each wait. It is long because the machine may be busy, and because watermill-sql's default schema for PostgreSQL holds every
// message back until the oldest writing transaction of the whole server has ended.
const sqlCaseLimit = 2 * time.Minute

// sqlCase is a topic with its consumer.
type sqlCase struct {
	*testing.T
	*sqlPair
	name   string
	config sqlServiceConfig
}

// run runs a case as a subtest.
func (p *sqlPair) run(name string, play func(c *sqlCase)) {
	p.T.Run(name, func(t *testing.T) { play(p.newCase(t, name)) })
}

func (p *sqlPair) newCase(t *testing.T, name string) *sqlCase {
	c := &sqlCase{T: t, sqlPair: p, name: name, config: p.config}
	c.config.Topic = name
	c.makeTopic(name)
	return c
}

func (c *sqlCase) makeTopic(topic string) {
	c.Helper()
	subscriber, err := c.broker.subscriber(c.queueWriter, 0)
	require.NoError(c, err)
	require.NoError(c, subscriber.SubscribeInitialize(topic))
	require.NoError(c, subscriber.Close())
}

// publish publishes a message as Watermill does.
func (c *sqlCase) publish(ids ...string) {
	c.Helper()
	publisher, err := wsql.NewPublisher(c.queueWriter, wsql.PublisherConfig{SchemaAdapter: c.broker.schema}, nil)
	require.NoError(c, err)
	for _, id := range ids {
		require.NoError(c, publisher.Publish(c.name, message.NewMessage(id, []byte(`{"order": "`+id+`"}`))))
	}
}

// insert publishes a message as somebody does who knows the table and not Watermill.
func (c *sqlCase) insert(uuid, payload, metadata string) {
	c.Helper()
	_, err := c.queue.Exec(fmt.Sprintf(c.broker.insert, c.broker.schema.MessagesTable(c.name), uuid, payload, metadata))
	require.NoError(c, err)
}

// start runs a service in this process.
func (c *sqlCase) start(options sqlServiceOptions) *sqlService {
	c.Helper()
	s, err := newSQLService(c.config, options)
	require.NoError(c, err)
	c.Cleanup(func() { _ = s.close() })
	require.NoError(c, s.run(context.Background()))
	return s
}

func (c *sqlCase) until(what string, is func() bool) {
	c.Helper()
	require.Eventually(c, is, sqlCaseLimit, 20*time.Millisecond, what)
}

func (c *sqlCase) unacked() int {
	c.Helper()
	return countRows(c.T, c.queue, fmt.Sprintf(c.broker.unacked, c.name))
}

func (c *sqlCase) untilAllAcked() {
	c.Helper()
	c.until("all messages to be acked", func() bool { return c.unacked() == 0 })
}

// worker is a service in a process of its own.
type sqlWorker struct {
	c       *sqlCase
	command *exec.Cmd
	events  chan workerEvent
	stderr  bytes.Buffer
}

// startWorker returns a worker that has subscribed.
func (c *sqlCase) startWorker(holdAt string) *sqlWorker {
	c.Helper()
	config := c.config
	config.HoldAt = holdAt
	encoded, err := json.Marshal(config)
	require.NoError(c, err)
	w := &sqlWorker{c: c, command: exec.Command(os.Args[0]), events: make(chan workerEvent, 100)}
	w.command.Env = append(os.Environ(), programVariable+"=sqlbroker-worker", workerConfigVariable+"="+string(encoded))
	w.command.Stderr = &w.stderr
	_, err = w.command.StdinPipe() // it lives as long as this is open
	require.NoError(c, err)
	stdout, err := w.command.StdoutPipe()
	require.NoError(c, err)
	require.NoError(c, w.command.Start())
	c.Cleanup(w.kill)
	go func() {
		defer close(w.events)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			var event workerEvent
			if json.Unmarshal(lines.Bytes(), &event) == nil {
				w.events <- event
			}
		}
	}()
	require.Equal(c, workerReady, w.next().Kind)
	return w
}

func (w *sqlWorker) next() workerEvent {
	w.c.Helper()
	select {
	case event, ok := <-w.events:
		if !ok {
			_ = w.command.Wait()
			w.c.Fatalf("the worker ended: %s", w.stderr.String())
		}
		return event
	case <-time.After(sqlCaseLimit):
		w.c.Fatalf("nothing from the worker in %s", sqlCaseLimit)
		return workerEvent{}
	}
}

// kill is SIGKILL.
func (w *sqlWorker) kill() {
	_ = w.command.Process.Kill()
	_ = w.command.Wait()
}
