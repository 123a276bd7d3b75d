package soak

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox/inboxtest"
)

// server is a database server of the test's own, so that nobody else minds when it dies.
type server struct {
	engine
	admin *sql.DB
	dir   string
	log   *os.File

	process *os.Process
	ended   chan struct{} // closed when the process is gone
}

// patience is far beyond what a server needs to start or stop.
const patience = 2 * time.Minute

func newServer(t *testing.T, database database) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "inbox-soak-") // not t.TempDir, which the server's user may not enter
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	s := &server{dir: dir}
	port := freePort(t)
	inboxtest.Server(t, database.variable, "an address of the soak's own", func(string) error {
		s.engine, err = database.find(dir, port)
		return err
	})

	if s.as != nil {
		require.NoError(t, os.Chown(dir, int(s.as.Uid), int(s.as.Gid)))
	}
	s.log, err = os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.log.Close() })
	initialize := s.command(s.initialize)
	require.NoError(t, initialize.Start())
	require.NoError(t, initialize.Wait(), "%s", s.logged())

	s.admin, err = sql.Open(database.driver, s.dsn(""))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.admin.Close() })
	t.Cleanup(s.kill)
	require.NoError(t, s.start(context.Background()))
	return s
}

// freePort is below the ports that the system gives to clients: one of those could take it while the server is down.
func freePort(t *testing.T) int {
	for range 100 {
		port := 20_000 + rand.IntN(10_000)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = listener.Close()
			return port
		}
	}
	require.FailNow(t, "no port is free")
	return 0
}

func (s *server) command(words []string) *exec.Cmd {
	command := exec.Command(words[0], words[1:]...)
	command.Dir = s.dir
	command.Stdout, command.Stderr = s.log, s.log
	command.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	dieWithParent(command.SysProcAttr)
	return command
}

// start returns when the server answers.
func (s *server) start(ctx context.Context) error {
	command := s.command(s.serve)
	if err := command.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	s.process, s.ended = command.Process, ended
	go func() {
		_ = command.Wait()
		close(ended)
	}()

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := s.admin.PingContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("the server ended at once:\n%s", s.logged())
		case <-ctx.Done():
			return fmt.Errorf("the server does not answer: %w\n%s", err, s.logged())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// end sends one of the engine's two signals and waits for the process to be gone.
func (s *server) end(signal syscall.Signal) error {
	select {
	case <-s.ended:
		return fmt.Errorf("the server ended by itself:\n%s", s.logged())
	default:
	}
	if err := s.process.Signal(signal); err != nil {
		return err
	}
	select {
	case <-s.ended:
		return nil
	case <-time.After(patience):
		return errors.New("the server does not end")
	}
}

// kill makes sure that nothing runs in the folder when it is removed.
func (s *server) kill() {
	if s.process != nil {
		_ = s.end(s.crash)
	}
}

// logged is the end of what the server wrote.
func (s *server) logged() string {
	const enough = 4000
	text, err := os.ReadFile(s.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-enough):])
}
