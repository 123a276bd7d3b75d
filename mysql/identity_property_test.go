package mysql_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

func TestNeighboursAreNeverMistaken(t *testing.T) {
	onBothServers(t, func(t *testing.T, b *bench, d driver) {
		for _, odd := range oddTexts() {
			row := inbox.Row{Consumer: "billing", Producer: "shop", ID: odd}
			b.checkIdentities(t, d, append(neighbours(row), row)...)
		}
	})
}

// INBOX_TEST_SEED replays a run.
func TestRandomIdentities(t *testing.T) {
	onBothServers(t, func(t *testing.T, b *bench, d driver) {
		random := seeded(t)
		var rows []inbox.Row
		for range 30 {
			row := inbox.Row{Consumer: randomText(random, 260), Producer: randomText(random, 520), ID: randomText(random, 520)}
			rows = append(rows, row, neighbours(row)[random.IntN(10)])
		}
		b.checkIdentities(t, d, rows...)
	})
}

// onBothServers runs a test with every DSN of both.
func onBothServers(t *testing.T, test func(t *testing.T, b *bench, d driver)) {
	for name, server := range servers {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, server)
			for _, d := range b.drivers {
				t.Run(d.name, func(t *testing.T) { test(t, b, d) })
			}
		})
	}
}

func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("INBOX_TEST_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("INBOX_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// randomText is short or around the limit, and of bytes that mean something to some engine or of any.
func randomText(random *rand.Rand, longest int) string {
	const special = "'\"`\\\x00\x1a\n %_?$:;-/*aA\xc3\xa4\xff"
	length := random.IntN(12)
	if random.IntN(4) == 0 {
		length = longest - random.IntN(16)
	}
	text := make([]byte, length)
	for n := range text {
		text[n] = special[random.IntN(len(special))]
		if random.IntN(2) == 0 {
			text[n] = byte(random.Uint32())
		}
	}
	return string(text)
}
