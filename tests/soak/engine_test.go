package soak

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// engine is how a server with its data in one folder is run.
type engine struct {
	initialize, serve []string // commands
	as                *syscall.Credential
	crash, stop       syscall.Signal

	dsn func(database string) string
}

// slowCommit, in microseconds, is how long a server collects COMMITs before it writes them together. A transaction then spends as much time in
// its COMMIT as before it, so a crash that comes when some run leaves them without an answer.
const slowCommit = "20000"

// databaseName is that of the service.
const databaseName = "soak"

func findPostgres(dir string, port int) (engine, error) {
	initdb, initErr := findProgram("initdb", "/usr/lib/postgresql/*/bin") // where Debian hides them
	postgres, err := findProgram("postgres", "/usr/lib/postgresql/*/bin")
	as, userErr := unprivileged("postgres")
	if err := errors.Join(initErr, err, userErr); err != nil {
		return engine{}, err
	}
	data := filepath.Join(dir, "data")
	return engine{
		initialize: []string{initdb, "--pgdata=" + data, "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"},
		serve: []string{postgres, "-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", "",
			"-c", "commit_delay=" + slowCommit, "-c", "commit_siblings=1", "-c", "deadlock_timeout=100ms"},
		as: as,
		// The immediate stop ends all processes of the server at once and without writing anything. SIGKILL would end the first of them only.
		crash: syscall.SIGQUIT,
		stop:  syscall.SIGINT, // rolls back and disconnects; SIGTERM would wait for the clients to go
		dsn: func(database string) string {
			if database == "" {
				database = "postgres"
			}
			return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", port, database)
		},
	}, nil
}

func findMariaDB(dir string, port int) (engine, error) {
	install, installErr := findProgram("mariadb-install-db")
	mariadbd, err := findProgram("mariadbd")
	if err := errors.Join(installErr, err); err != nil {
		return engine{}, err
	}
	e := mysqlLike([]string{mariadbd, "--no-defaults"}, dir, port)
	e.serve = append(e.serve, "--binlog-commit-wait-usec="+slowCommit, "--binlog-commit-wait-count=1000")
	e.initialize = slices.Concat([]string{install, "--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db",
		"--datadir=" + filepath.Join(dir, "data")}, asRoot())
	return e, nil
}

func findMySQL(dir string, port int) (engine, error) {
	mysqld, err := unpackedMySQL(filepath.Join(dir, "data"))
	if errors.Is(err, fs.ErrNotExist) {
		mysqld, err = installedMySQL()
	}
	if err != nil {
		return engine{}, err
	}
	e := mysqlLike(mysqld, dir, port)
	e.serve = append(e.serve, "--binlog-group-commit-sync-delay="+slowCommit, "--mysqlx=OFF")
	e.initialize = append(slices.Clone(e.serve), "--initialize-insecure")
	return e, nil
}

// mysqlLike puts options behind those in command, where they win.
func mysqlLike(command []string, dir string, port int) engine {
	return engine{
		serve: slices.Concat(command, []string{
			"--datadir=" + filepath.Join(dir, "data"), "--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"),
			"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port), "--log-bin=binlog", "--server-id=1",
		}, asRoot()),
		crash: syscall.SIGKILL,
		stop:  syscall.SIGTERM,
		dsn: func(database string) string {
			return fmt.Sprintf("root@tcp(127.0.0.1:%d)/%s?readTimeout=10s", port, database)
		},
	}
}

// asRoot is what these servers want to hear before root may start them.
func asRoot() []string {
	if os.Getuid() != 0 {
		return nil
	}
	return []string{"--user=root"}
}

// unpackedMySQL is the one of scripts/mysql.sh, which alone knows how to run it.
func unpackedMySQL(data string) ([]string, error) {
	cache, err := os.UserCacheDir() // as in scripts/services
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "watermill-inbox")
	if _, err := os.Stat(filepath.Join(cache, "mysql", "root", "usr", "sbin", "mysqld")); err != nil {
		return nil, err
	}
	command := exec.Command("bash", "-euc", `cache=$1; source ../../scripts/mysql.sh; mysqld_command "$2"; printf '%s\n' "${mysqld[@]}"`,
		"bash", cache, data)
	printed, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("scripts/mysql.sh: %w", err)
	}
	return strings.Split(strings.TrimSpace(string(printed)), "\n"), nil
}

func installedMySQL() ([]string, error) {
	mysqld, err := findProgram("mysqld")
	if err != nil {
		return nil, err
	}
	version, err := exec.Command(mysqld, "--version").Output()
	if err != nil || strings.Contains(string(version), "MariaDB") {
		return nil, errors.Join(err, fmt.Errorf("%s is not MySQL: %s", mysqld, version))
	}
	return []string{mysqld, "--no-defaults"}, nil
}

// findProgram also looks where servers are and the PATH of a user may not lead.
func findProgram(name string, patterns ...string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, pattern := range append(patterns, "/usr/local/sbin", "/usr/sbin", "/sbin") {
		if found, _ := filepath.Glob(filepath.Join(pattern, name)); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("there is no program %q on this machine", name)
}

// unprivileged is the user for a server that refuses to be started by root; nil if the test is not root.
func unprivileged(name string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, uidErr := strconv.ParseUint(account.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(account.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(uidErr, gidErr)
}
