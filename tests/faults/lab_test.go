package faults

import (
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/inboxtest"
)

// lab is an empty database of one run, behind a proxy where there is a server.
type lab struct {
	target
	admin *sql.DB // straight to the database; one connection
	dsn   string  // what services use
	proxy *Proxy  // nil without a server

	mu   sync.Mutex
	hook Hook
}

func newLab(t *testing.T, target target) *lab {
	t.Helper()
	l := &lab{target: target}
	var direct string
	if target.engine == isSQLite {
		direct = "file:" + filepath.Join(t.TempDir(), "faults.db") +
			"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(500)&_pragma=synchronous(OFF)&_txlock=immediate"
		l.dsn = direct
	} else {
		direct = l.createDatabase(t)
	}
	var err error
	l.admin, err = sql.Open(target.driver, direct)
	require.NoError(t, err)
	l.admin.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = l.admin.Close() })
	l.createSchema(t)
	return l
}

func (l *lab) createDatabase(t *testing.T) (direct string) {
	t.Helper()
	address := inboxtest.Server(t, l.variable, l.fallback, func(address string) error {
		db, err := sql.Open(l.driver, address)
		if err != nil {
			return err
		}
		defer db.Close()
		return db.Ping()
	})
	server, err := sql.Open(l.driver, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })

	name := fmt.Sprintf("inbox_faults_%s_%d", strings.ReplaceAll(l.name, "-", "_"), time.Now().UnixNano())
	_, err = server.Exec("CREATE DATABASE " + name)
	require.NoError(t, err)
	t.Cleanup(func() {
		drop := "DROP DATABASE " + name
		if l.engine == isPostgres {
			drop += " WITH (FORCE)"
		}
		_, err := server.Exec(drop)
		require.NoError(t, err)
	})

	if l.engine == isPostgres {
		return l.behindPostgresProxy(t, address, name)
	}
	return l.behindMySQLProxy(t, address, name)
}

func (l *lab) behindPostgresProxy(t *testing.T, address, database string) (direct string) {
	u, err := url.Parse(address)
	require.NoError(t, err)
	u.Path = "/" + database
	direct = u.String()
	host := u.Host
	if u.Port() == "" {
		host += ":5432"
	}
	l.proxy, err = NewPostgresProxy(host, l.statements())
	require.NoError(t, err)
	l.startProxy(t)
	u.Host = l.proxy.Addr()
	query := u.Query()
	query.Set("connect_timeout", "2") // for lib/pq, which looks at no context while it connects
	query.Set("sslmode", "disable")   // the proxy cannot read what is encrypted
	u.RawQuery = query.Encode()
	l.dsn = u.String()
	return direct
}

func (l *lab) behindMySQLProxy(t *testing.T, address, database string) (direct string) {
	config, err := mysqldriver.ParseDSN(address)
	require.NoError(t, err)
	config.DBName = database
	direct = config.FormatDSN()
	l.proxy, err = NewMySQLProxy(config.Addr, l.statements())
	require.NoError(t, err)
	l.startProxy(t)
	config.Net, config.Addr, config.ReadTimeout = "tcp", l.proxy.Addr(), readTimeout
	l.dsn = config.FormatDSN()
	return direct
}

func (l *lab) startProxy(t *testing.T) {
	l.proxy.SetHook(l.at)
	t.Cleanup(l.proxy.Close)
}

func (l *lab) createSchema(t *testing.T) {
	statements, err := l.createTables()
	require.NoError(t, err)
	for _, statement := range statements {
		_, err := l.admin.Exec(statement)
		require.NoError(t, err, statement)
	}
	p, err := l.open(l.dsn, l.at)
	require.NoError(t, err)
	defer p.close()
	_, err = inbox.New(p.db, inbox.Config{Schema: l.schema, Consumer: consumer, AutoInitializeSchema: true}, nil)
	require.NoError(t, err)
}

func (l *lab) setHook(hook Hook) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hook = hook
}

// at is the hook of everything in the lab.
func (l *lab) at(point Point) Verdict {
	l.mu.Lock()
	hook := l.hook
	l.mu.Unlock()
	if hook == nil {
		return Pass
	}
	return hook(point)
}

// state is what the database holds of a message.
type state struct{ identity, first, second, outgoing int }

var (
	nothing    = state{}
	everything = state{1, 1, 1, 1}
)

func (l *lab) state(id string) (s state, err error) {
	query := fmt.Sprintf("SELECT (SELECT COUNT(*) FROM inbox_messages WHERE "+l.identity+"), "+
		"(SELECT COUNT(*) FROM biz WHERE id = '%[2]s' AND part = 1), (SELECT COUNT(*) FROM biz WHERE id = '%[2]s' AND part = 2), "+
		"(SELECT COUNT(*) FROM watermill_outgoing WHERE uuid = '%[2]s')", id, id)
	err = l.admin.QueryRow(query).Scan(&s.identity, &s.first, &s.second, &s.outgoing)
	return s, err
}

// requireNone waits until a query counts nothing.
func (l *lab) requireNone(t *testing.T, query, what string) {
	t.Helper()
	if query == "" {
		return // SQLite has no server: its connections are those of the pool
	}
	var n int
	var err error
	eventually(t, func() string { return fmt.Sprintf("%d %s (%v)", n, what, err) }, func() bool {
		err = l.admin.QueryRow(query).Scan(&n)
		return err == nil && n == 0
	})
}

// eventually polls. Ten seconds are for a machine under load.
func eventually(t *testing.T, what func() string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(t, "still "+what())
		}
	}
}
