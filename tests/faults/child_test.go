package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// childVariable makes the test binary a process of the consumer that handles one delivery.
const childVariable = "INBOX_TEST_FAULTS_CHILD"

// childConfig is what such a process finds there.
type childConfig struct {
	Target string
	DSN    string
	ID     string
	Times  limits
	Inside []Fault // in the user's code
	Engine []Fault // in the engine, where there is no proxy
}

func TestMain(m *testing.M) {
	_ = mysqldriver.SetLogger(&mysqldriver.NopLogger{}) // it writes every broken connection to the standard error
	config := os.Getenv(childVariable)
	if config == "" {
		os.Exit(m.Run())
	}
	if err := runChild(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Lines that a child prints. They are written at once, so that what was printed before a SIGKILL is not lost.
const (
	saysCall  = "call"
	saysFired = "fired "
	saysAck   = "ack"
	saysNack  = "nack "
)

func runChild(text string) error {
	var config childConfig
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return err
	}
	target, err := targetNamed(config.Target)
	if err != nil {
		return err
	}
	engine := NewInjector(config.Engine, func(fault Fault) Verdict {
		fmt.Println(saysFired + fault.String())
		return act(fault, func() {}, func() {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // until it arrives
		})
	})
	code := NewInjector(config.Inside, func(fault Fault) Verdict {
		fmt.Println(saysFired + fault.String())
		if fault.Kind == KindPanic {
			panic(fault.String())
		}
		os.Exit(3)
		return Pass
	})
	s, err := newService(target, config.DSN, engine.At, config.Times,
		func(string) { fmt.Println(saysCall) }, func(p Point) { code.At(p) })
	if err != nil {
		return err
	}
	if r := s.deliver(context.Background(), config.ID); r.acked {
		fmt.Println(saysAck)
	} else {
		fmt.Println(saysNack + strings.ReplaceAll(fmt.Sprint(r.err), "\n", " "))
	}
	s.close()
	return nil
}

func (l *lab) deliverToChild(t *testing.T, id string, faults []Fault, times limits) delivered {
	t.Helper()
	config := childConfig{Target: l.name, DSN: l.dsn, ID: id, Times: times}
	outside, inside := splitFaults(faults)
	config.Inside = inside
	if l.proxy == nil {
		config.Engine, outside = outside, nil
	}
	text, err := json.Marshal(config)
	require.NoError(t, err)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	child := exec.CommandContext(ctx, os.Args[0])
	child.Env = append(os.Environ(), childVariable+"="+string(text), "GORACE=atexit_sleep_ms=0")
	child.Stdout, child.Stderr = &stdout, &stderr
	started, exited := make(chan struct{}), make(chan struct{})
	wire := NewInjector(outside, func(fault Fault) Verdict {
		return act(fault, func() {}, func() {
			<-started
			_ = child.Process.Kill()
			<-exited
		})
	})
	l.setHook(wire.At)
	defer l.setHook(nil)
	require.NoError(t, child.Start())
	close(started)
	go func() {
		err = child.Wait()
		close(exited)
	}()
	d := delivered{released: l.await(exited, func() {})}

	d.fired, d.passed = wire.Fired(), wire.Passed()
	d.err = fmt.Errorf("process ended: %w", context.Cause(ctx))
	if err != nil {
		d.err = err
	}
	for line := range strings.Lines(stdout.String()) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == saysCall:
			d.calls++
		case line == saysAck:
			d.result = result{acked: true}
		case strings.HasPrefix(line, saysFired):
			d.fired = append(d.fired, strings.TrimPrefix(line, saysFired))
		case strings.HasPrefix(line, saysNack):
			d.err = fmt.Errorf("%s", strings.TrimPrefix(line, saysNack))
		}
	}
	require.Empty(t, stderr.String(), "child's standard error")
	return d
}
