package inboxtest

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// FuzzIdentity tries any consumer, producer and id: they are either refused by name, with nothing stored, or stored byte for byte and recognised
// again; what differs in a single byte is never taken for them. Its corpus has the three and a byte.
func FuzzIdentity(f *testing.F, b Bench) {
	for _, odd := range oddTexts() {
		f.Add("billing", "", odd, uint8(0))
		f.Add("billing", odd, "m1", uint8(3))
		f.Add(odd, "shop", "m1", uint8(5))
	}
	f.Fuzz(func(t *testing.T, consumer, producer, id string, n uint8) {
		row := inbox.Row{Consumer: consumer, Producer: producer, ID: id}
		near := neighbours(row)
		b.checkIdentities(t, b.Drivers[len(id)%len(b.Drivers)], row, near[int(n)%len(near)])
	})
}

// TestNeighbours has identities beside each other that some collation, trimming or joining would take for one.
func TestNeighbours(t *testing.T, b Bench) {
	b.withEachDriver(t, func(t *testing.T, driver BenchDriver) {
		for _, odd := range oddTexts() {
			row := inbox.Row{Consumer: "billing", Producer: "shop", ID: odd}
			b.checkIdentities(t, driver, append(neighbours(row), row)...)
		}
	})
}

// TestRandomIdentities has a few hundred identities of random bytes. INBOX_TEST_SEED in the environment replays a run.
func TestRandomIdentities(t *testing.T, b Bench) {
	b.withEachDriver(t, func(t *testing.T, driver BenchDriver) {
		random := seeded(t)
		var rows []inbox.Row
		for range 100 {
			row := inbox.Row{
				Consumer: randomText(random, 260),
				Producer: randomText(random, 520),
				ID:       randomText(random, 520),
			}
			rows = append(rows, row, neighbours(row)[random.IntN(10)])
		}
		b.checkIdentities(t, driver, rows...)
	})
}

// checkIdentities delivers each message twice.
func (b Bench) checkIdentities(t *testing.T, driver BenchDriver, rows ...inbox.Row) {
	t.Helper()
	x := b.trial(driver, false)
	x.clear(t)
	stored := map[inbox.Row]bool{}
	for range 2 {
		for _, row := range rows {
			outcome, err := x.process(t, row, message.NewMessage("any", nil))
			if refusedIdentity(t, row, err) {
				continue
			}
			if err != nil {
				t.Fatalf("%.600q: %v", row, err)
			}
			if stored[row] != (outcome == inbox.Duplicate) {
				t.Fatalf("%.600q: %v, but it was stored before: %t", row, outcome, stored[row])
			}
			stored[row] = true
		}
	}
	x.wantStored(t, slices.Collect(maps.Keys(stored))...)
}

// refusedIdentity reports whether the row cannot be stored. It stops the test unless the error then says so. The limits are those of the tables,
// written out so that a change of the inbox's constants is noticed.
func refusedIdentity(t *testing.T, row inbox.Row, err error) bool {
	t.Helper()
	blank := func(s string) bool { return len(strings.Fields(s)) == 0 }
	if blank(row.Consumer) || len(row.Consumer) > 255 {
		// New refuses the configuration; without a handler's name nothing takes the place of an empty consumer.
		wantText(t, err, "onsumer")
		return true
	}
	switch {
	case blank(row.ID):
		wantPermanent(t, err, inbox.ErrNoIdentity)
	case len(row.ID) > 512 || len(row.Producer) > 512:
		wantPermanent(t, err, inbox.ErrIdentityTooLong)
	default:
		return false
	}
	var named *inbox.Error
	if !errors.As(err, &named) || named.Consumer != row.Consumer || named.Identity.Producer != row.Producer || named.Identity.ID != row.ID {
		t.Fatalf("want an *inbox.Error with the fields of %.600q; got %+.600q", row, named)
	}
	wantText(t, err, strconv.Quote(row.Consumer))
	wantShort(t, err)
	return true
}

// wantShort stops the test unless the error spares the log what is huge in a message.
func wantShort(t *testing.T, err error) {
	t.Helper()
	if length := len(err.Error()); length >= 20_000 {
		t.Fatalf("the error has %d bytes: %.600s", length, err)
	}
}
