package brokertest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"
)

// process is a worker in a process of its own.
type process struct {
	c       *testCase
	number  int // from 1
	command *exec.Cmd
	stdin   io.WriteCloser
	stderr  bytes.Buffer
	wait    func() error // for the end of the process and of what it printed

	ending atomic.Bool
}

// start returns a worker that has subscribed.
func (c *testCase) start(does behaviour) *process {
	c.Helper()
	p := c.launch(does)
	c.await("a worker to start", 1, event{Kind: ready, From: p.number})
	return p
}

func (c *testCase) launch(does behaviour) *process {
	c.Helper()
	encoded, err := json.Marshal(workerConfig{
		Broker: c.broker.Name, Address: c.address, DSN: c.dsn, Topic: c.topic, Group: c.group, Behaviour: does,
	})
	require.NoError(c, err)

	p := &process{c: c, number: len(c.processes) + 1, command: exec.Command(os.Args[0])}
	p.command.Env = append(os.Environ(), workerVariable+"="+string(encoded))
	p.command.Stderr = &p.stderr
	p.stdin, err = p.command.StdinPipe()
	require.NoError(c, err)
	stdout, err := p.command.StdoutPipe()
	require.NoError(c, err)
	require.NoError(c, p.command.Start())

	printed := make(chan struct{})
	go func() {
		defer close(printed)
		p.read(stdout)
	}()
	p.wait = sync.OnceValue(func() error {
		<-printed
		return p.command.Wait()
	})
	c.processes = append(c.processes, p)
	c.Cleanup(p.cleanUp)
	return p
}

func (p *process) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			continue // the line that SIGKILL cut off
		}
		e.From = p.number
		p.c.events.add(e)
	}
	p.c.events.add(event{Kind: exited, From: p.number})
}

// goOn lets a held worker finish, and never hold again.
func (p *process) goOn() {
	p.c.Helper()
	_, err := io.WriteString(p.stdin, goOnCommand+"\n")
	require.NoError(p.c, err)
}

// kill is SIGKILL. It returns when all is known that the worker told.
func (p *process) kill() {
	p.c.Helper()
	p.ending.Store(true)
	require.NoError(p.c, p.command.Process.Kill())
	_ = p.wait()
}

// stop ends the worker as a deployment does.
func (p *process) stop() {
	p.c.Helper()
	p.ending.Store(true)
	require.NoError(p.c, p.stdin.Close())
	late := time.AfterFunc(2*closeTimeout, func() { _ = p.command.Process.Kill() })
	defer late.Stop()
	require.NoError(p.c, p.wait(), p.stderr.String())
}

// cleanUp makes sure that the process is gone whatever happened.
func (p *process) cleanUp() {
	p.ending.Store(true)
	_ = p.command.Process.Kill()
	_ = p.wait()
	if p.c.Failed() {
		p.c.Logf("errors of worker %d:\n%s", p.number, p.stderr.String())
		if p.number == 1 {
			p.c.tell()
		}
	}
}
