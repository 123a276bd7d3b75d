package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHelp(t *testing.T) {
	t.Parallel()
	golden(t, "help.txt", inboxctl(t, nil, "help").succeeds(t))
	require.Equal(t, inboxctl(t, nil, "help").stdout, inboxctl(t, nil, "--help").succeeds(t))
	for _, command := range []string{"init", "verify", "status", "list", "show", "redrive", "discard", "forget", "clean"} {
		golden(t, "help-"+command+".txt", inboxctl(t, nil, "help", command).succeeds(t))
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"", "lst", "list x", "--nope", "list --nope", "list --output xml", "list --timeout 0s", "list --timeout x", "list --limit 0", "list --queue x", "list --state x",
		"show", "show 1 2", "show x", "show 1 --payload x", "init --tables x", "redrive 1 --yes --dry-run", "show 1 --id x", "show --id x", "forget", "forget --yes", "forget --consumer x",
		"forget --consumer x --from 2026-01-01", "forget --consumer x --from 2026-01-02 --to 2026-01-01", "forget --consumer x --from x --to y", "forget --id x",
		"forget --consumer x --id y --from 2026-01-01 --to 2026-01-02", "forget --consumer x --producer y", "clean", "clean --older-than x", "clean --older-than -1h",
		"clean --older-than 23h", "clean --older-than 0d --consumer x", "clean --older-than 30d --batch 0", "clean --older-than 30d --pause 0s", "clean --older-than 999999d",
		"clean --older-than 30d --dead-payloads x", "list", "list --dsn oracle:x", "list --dsn postgres",
	} {
		line := inboxctl(t, nil, strings.Fields(args)...).fails(t, 2)
		require.Greater(t, len(line), len("inboxctl: ")+10, args)
	}
}

// Passwords are printed nowhere: not those of DSNs that do not work, nor those with mistakes, nor those in the wrong place.
func TestSecrets(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t/p#s?w:r@d"
	for _, dsn := range []string{
		"postgres://user:" + secret + "@127.0.0.1:1/db",
		"postgres://user:s3cr3t%2Fp%23s%3Fw%3Ar%40d@127.0.0.1:1/db",
		"postgres://user:s3cr3t@127.0.0.1:port/db",
		"postgres://user:s3cr3t@127.0.0.1:1/db?sslmode=nonsense",
		"postgres://127.0.0.1:1/db?user=u&password=s3cr3t",
		"postgres:user=u password=s3cr3t",
		"postgre://user:s3cr3t@127.0.0.1:1/db",
		"mysql://user:" + secret + "@127.0.0.1:1/db",
		"mysql://user:s3cr3t%2Fp%23s%3Fw%3Ar%40d@127.0.0.1:1/db",
		"mysql://user:s3cr3t@127.0.0.1:1/db?tls=s3cr3t",
		"mysql:user:" + secret + "@tcp(127.0.0.1:1)/db",
		"mysql:user:s3cr3t@tcp(127.0.0.1:1)",
		"mysql:user:s3cr3t@carrier-pigeon(127.0.0.1:1)/db",
		"user:s3cr3t@tcp(127.0.0.1:1)/db",
		"s3cr3t",
	} {
		for _, r := range []result{
			inboxctl(t, []string{"INBOX_DSN=" + dsn}, "status"),
			inboxctl(t, nil, "status", "--dsn", dsn),
			inboxctl(t, nil, "status", "-dsn="+dsn),
			inboxctl(t, nil, "status", "--dns="+dsn),
		} {
			require.Contains(t, []int{1, 2}, r.code, dsn)
			r.fails(t, r.code)
			require.NotContains(t, r.stdout+r.stderr, "s3cr3t", dsn)
		}
		if dsn != "s3cr3t" { // nobody can know that this is a DSN
			for _, args := range [][]string{{dsn}, {"status", dsn}, {"show", dsn}, {"init", "--tables", dsn}, {"list", "--timeout", dsn}} {
				r := inboxctl(t, nil, args...)
				r.fails(t, 2)
				require.NotContains(t, r.stdout+r.stderr, "s3cr3t", args)
			}
		}
	}
}
