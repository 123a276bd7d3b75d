package inboxtest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/watermill-inbox/inbox"
)

// oddTexts are seeds: blanks, case, composition, NUL, what is not UTF-8, quoting, placeholders, and sizes around the limits.
func oddTexts() []string {
	return []string{
		"", " ", "\u00a0\t", "m1", "M1", "m1 ", "m1\x00", "\x00", "\xff", "\xc3\x28", "\xed\xa0\x80", "é", "e\u0301", "İ", "ß",
		"'", `"`, "`", `\`, `\'`, `\0`, "'); DROP TABLE inbox_messages; --", "'); DELETE FROM inbox_messages; --", "$1", "?", ":a", "%s", "\u2028",
		strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("\x00", 512), strings.Repeat("ä", 256), strings.Repeat("ä", 256) + "x",
		strings.Repeat("'", 513), strings.Repeat("x", 5_000),
	}
}

// neighbours are identities that some collation, trimming or joining would take for that of row. Some may be row itself.
func neighbours(row inbox.Row) []inbox.Row {
	ids := []string{
		row.ID + " ", row.ID + "\x00", strings.TrimSpace(row.ID), strings.ToUpper(row.ID), strings.ToLower(row.ID), strings.ToValidUTF8(row.ID, "\ufffd"),
		row.ID[:len(row.ID)/2], strings.ReplaceAll(row.ID, `\`, `\\`), strings.ReplaceAll(row.ID, "'", "''"), row.ID[:min(len(row.ID), inbox.MaxIDLength)],
	}
	near := []inbox.Row{
		{Consumer: row.Consumer, Producer: row.ID, ID: row.Producer},
		{Consumer: row.Producer, Producer: row.Consumer, ID: row.ID},
		{Consumer: row.Consumer, Producer: row.Producer + row.ID[:len(row.ID)/2], ID: row.ID[len(row.ID)/2:]},
		{Consumer: row.Consumer + row.Producer, ID: row.ID},
		{Consumer: row.Consumer + " ", Producer: row.Producer, ID: row.ID},
		{Consumer: row.Consumer, Producer: row.Producer + "\x00", ID: row.ID},
	}
	for _, id := range ids {
		near = append(near, inbox.Row{Consumer: row.Consumer, Producer: row.Producer, ID: id})
	}
	return near
}

// seeded is random, or as INBOX_TEST_SEED says.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("INBOX_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("INBOX_TEST_SEED: %v", err)
		}
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
