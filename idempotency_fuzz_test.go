package inbox

import (
	"context"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var keyFormat = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Different (consumer, producer, id) never share a key, however much they look alike when they are joined.
func FuzzIdempotencyKey(f *testing.F) {
	f.Add("billing", "shop", "m1", uint8(0), 3)
	f.Add("a", "b:c", "d", uint8(1), 1)
	f.Add("a:b", "c", "d", uint8(2), 1)
	f.Add("", "", "\x00", uint8(3), 0)
	f.Add("billing", "shop", "m1", uint8(5), 0)
	f.Add("billing", "shop", "m1", uint8(6), 0)
	f.Add("c", "\x00\x00\x00\x00\x00\x00\x00\x01", "\xff", uint8(4), 8)
	f.Fuzz(func(t *testing.T, consumer, producer, id string, move uint8, n int) {
		row := Row{Consumer: consumer, Producer: producer, ID: id}
		other := row
		n = max(n, 0)
		switch move % 7 { // bytes go over a border, parts change places or lose their end
		case 0:
			n = min(n, len(consumer))
			other.Consumer, other.Producer = consumer[:n], consumer[n:]+producer
		case 1:
			n = min(n, len(producer))
			other.Producer, other.ID = producer[:n], producer[n:]+id
		case 2:
			n = min(n, len(id))
			other.Producer, other.ID = producer+id[:n], id[n:]
		case 3:
			other.Producer, other.ID = id, producer
		case 4:
			n = min(n, len(id))
			other.ID = id[:n]
		case 5:
			other.Producer = producer[:min(n, len(producer))]
		case 6:
			other.Consumer = consumer[:min(n, len(consumer))]
		}
		key := idempotencyKey(t, row)
		require.Regexp(t, keyFormat, key)
		again := row
		again.Fingerprint, again.Token = "another", 7
		require.Equal(t, key, idempotencyKey(t, again), "the key depends on more than the identity")
		require.Equal(t, row == other, key == idempotencyKey(t, other), "%q and %q", row, other)
	})
}

func idempotencyKey(t *testing.T, row Row) string {
	t.Helper()
	key, ok := IdempotencyKey(context.WithValue(context.Background(), contextKey{}, &holder{row: row}))
	require.True(t, ok)
	return key
}
