package postgres_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// Any consumer, producer and id are either refused by name, with nothing stored, or stored byte for byte and recognised again; what differs
// in a single byte is never taken for it.
func FuzzIdentity(f *testing.F) {
	b := newBench(f)
	for _, odd := range oddTexts() {
		f.Add("billing", "", odd, uint8(0))
		f.Add("billing", odd, "m1", uint8(3))
		f.Add(odd, "shop", "m1", uint8(5))
	}
	f.Fuzz(func(t *testing.T, consumer, producer, id string, n uint8) {
		row := inbox.Row{Consumer: consumer, Producer: producer, ID: id}
		near := neighbours(row)
		b.checkIdentities(t, b.drivers[len(id)%len(b.drivers)], row, near[int(n)%len(near)])
	})
}

func oddTexts() []string {
	return []string{
		"", " ", "\u00a0\t", "m1", "M1", "m1 ", "m1\x00", "\x00", "\xff", "\xc3\x28", "\xed\xa0\x80", "é", "e\u0301", "İ", "ß", "'", `"`, "`", `\`, `\'`, `\0`,
		"'); DROP TABLE inbox_messages; --", "$1", "?", ":a", "%s", "\u2028", strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("\x00", 512),
		strings.Repeat("ä", 256), strings.Repeat("ä", 256) + "x", strings.Repeat("'", 513), strings.Repeat("x", 5_000),
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

// checkIdentities delivers each message twice.
func (b *bench) checkIdentities(t *testing.T, d driver, rows ...inbox.Row) {
	t.Helper()
	b.clear(t)
	want := map[inbox.Row]bool{}
	for range 2 {
		for _, row := range rows {
			outcome, err := b.process(t, d.db, row, message.NewMessage("any", nil), bytesTopic)
			if refused(t, row, err) {
				continue
			}
			require.NoError(t, err)
			require.Equal(t, want[row], outcome == inbox.Duplicate, "%q: %v", row, outcome)
			want[row] = true
		}
	}
	require.Equal(t, want, b.stored(t))
}

// refused reports whether the row cannot be stored. It stops the test unless the error then says so.
func refused(t *testing.T, row inbox.Row, err error) bool {
	t.Helper()
	blank := func(s string) bool { return len(strings.Fields(s)) == 0 }
	if blank(row.Consumer) || len(row.Consumer) > 255 {
		// New refuses the configuration; without a handler's name nothing takes the place of an empty consumer.
		require.ErrorContains(t, err, "onsumer")
		return true
	}
	want := error(nil)
	switch {
	case blank(row.ID):
		want = inbox.ErrNoIdentity
	case len(row.ID) > 512 || len(row.Producer) > 512:
		want = inbox.ErrIdentityTooLong
	default:
		return false
	}
	var named *inbox.Error
	require.ErrorIs(t, err, want)
	require.ErrorAs(t, err, &named)
	require.Equal(t, row, inbox.Row{Consumer: named.Consumer, Producer: named.Identity.Producer, ID: named.Identity.ID})
	require.ErrorContains(t, err, strconv.Quote(row.Consumer))
	require.True(t, inbox.IsPoison(err) && !inbox.IsRetryable(err))
	require.Less(t, len(err.Error()), 20_000)
	return true
}
