package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"
)

// workerProcess is a worker in a process of its own.
type workerProcess struct {
	run     *rabbitMQRun
	command *exec.Cmd
	stdin   io.Closer
	stderr  bytes.Buffer
	wait    func() error // for the end of the process and of what it printed

	ended, held atomic.Int32 // deliveries
}

func (r *rabbitMQRun) startWorker(holdAt string) *workerProcess {
	config := r.config
	config.HoldAt = holdAt
	encoded, err := json.Marshal(config)
	require.NoError(r, err)

	p := &workerProcess{run: r, command: exec.Command(os.Args[0])}
	p.command.Env = append(os.Environ(), programVariable+"=rabbitmq-worker", workerConfigVariable+"="+string(encoded))
	p.command.Stderr = &p.stderr
	p.stdin, err = p.command.StdinPipe()
	require.NoError(r, err)
	stdout, err := p.command.StdoutPipe()
	require.NoError(r, err)
	require.NoError(r, p.command.Start())
	r.Cleanup(p.end)

	ready := make(chan struct{})
	printed := make(chan struct{})
	go func() {
		defer close(printed)
		p.read(stdout, ready)
	}()
	p.wait = sync.OnceValue(func() error {
		<-printed
		return p.command.Wait()
	})
	r.await("a worker to start", func() bool { return isClosed(ready) || isClosed(printed) })
	if !isClosed(ready) {
		r.Fatalf("a worker ended at once: %v\n%s", p.wait(), p.stderr.String())
	}
	return p
}

func (p *workerProcess) read(stdout io.Reader, ready chan<- struct{}) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var event workerEvent
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			continue // the line that SIGKILL cut off
		}
		switch event.Kind {
		case workerReady:
			close(ready)
			continue
		case workerHeld:
			p.held.Add(1)
		default:
			p.ended.Add(1)
		}
		select {
		case p.run.events <- event:
		case <-p.run.ctx.Done():
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// stop ends the worker as a deployment does.
func (p *workerProcess) stop() {
	require.NoError(p.run, p.stdin.Close())
	require.NoError(p.run, p.wait(), p.stderr.String())
}

// end makes sure that the process is gone whatever happened.
func (p *workerProcess) end() {
	_ = p.command.Process.Kill()
	_ = p.wait()
	if p.run.Failed() {
		p.run.Logf("a worker's errors:\n%s", p.stderr.String())
	}
}
