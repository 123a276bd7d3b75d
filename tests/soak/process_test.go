package soak

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
)

// process is a consumer in a process of its own.
type process struct {
	command *exec.Cmd
	stdin   io.Closer
	stderr  tail

	acked chan struct{} // closed at the first ack
	ended chan struct{} // closed when the process is gone and all that it printed is read
	err   error         // how it ended
	over  atomic.Bool   // its end is wanted

	mu     sync.Mutex
	counts counters
}

func startProcess(config consumerConfig) (*process, error) {
	encoded, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	p := &process{command: exec.Command(os.Args[0]), acked: make(chan struct{}), ended: make(chan struct{})}
	p.command.Env = append(os.Environ(), consumerVariable+"="+string(encoded), "GORACE=atexit_sleep_ms=0")
	p.command.Stderr = &p.stderr
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.read(stdout)
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) read(stdout io.Reader) {
	acked := false
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var counts counters
		if err := json.Unmarshal(lines.Bytes(), &counts); err != nil {
			continue // the line that SIGKILL cut off
		}
		p.mu.Lock()
		p.counts = counts
		p.mu.Unlock()
		if !acked && counts.Acks > 0 {
			acked = true
			close(p.acked)
		}
	}
}

func (p *process) counted() counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts
}

// kill is what a soak does to consumers.
func (p *process) kill() error {
	p.over.Store(true)
	err := p.command.Process.Kill()
	<-p.ended
	return err
}

// stop ends the consumer as a deployment does.
func (p *process) stop() error {
	p.over.Store(true)
	_ = p.stdin.Close()
	<-p.ended
	if p.err != nil {
		return fmt.Errorf("a consumer was stopped: %w\n%s", p.err, p.stderr.String())
	}
	return nil
}

// tail is an io.Writer that keeps the end of what was written.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(text []byte) (int, error) {
	const enough = 4000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-enough):]
	return len(text), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
