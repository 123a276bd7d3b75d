package inbox

import (
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
)

// The stored form of a fingerprint leads back to it, and to no other.
func FuzzStoredFingerprint(f *testing.F) {
	f.Add("sha256", []byte("sum"), 1)
	f.Add("sha256", []byte("a:b"), 2)
	f.Add("a:b", []byte{0}, 0)
	f.Add("", []byte(nil), 0)
	f.Add("", []byte{1}, 0)
	f.Add("n", []byte{}, 0)
	f.Add(strings.Repeat("n", 63), make([]byte, 64), 63)
	f.Add(strings.Repeat("n", 64), make([]byte, 65), 1)
	f.Fuzz(func(t *testing.T, name string, sum []byte, cut int) {
		_ = DecodeFingerprint(name + string(sum)).String() // what others have written is read without a panic

		fingerprint := Fingerprint{Name: name, Sum: sum}
		stored, err := fingerprint.encode()
		nameFits := len(name) >= 1 && len(name) <= 63 && !strings.Contains(name, ":")
		fits := nameFits && len(sum) >= 1 && len(sum) <= 64
		if none := name == "" && len(sum) == 0; !fits && !none {
			require.ErrorContains(t, err, "fingerprint")
			require.Empty(t, stored)
			return
		}
		require.NoError(t, err)
		require.LessOrEqual(t, len(stored), 128, "more than the column holds")
		require.Equal(t, name, DecodeFingerprint(stored).Name)
		require.Equal(t, string(sum), string(DecodeFingerprint(stored).Sum))
		require.False(t, fingerprint.Differs(DecodeFingerprint(stored)))

		// The same bytes, divided elsewhere.
		all := name + string(sum)
		cut = min(max(cut, 0), len(all))
		other := Fingerprint{Name: all[:cut], Sum: []byte(all[cut:])}
		if otherStored, err := other.encode(); err == nil && other.Name != name {
			require.NotEqual(t, stored, otherStored)
		}
	})
}

// No two contents of payload and chosen metadata have one sum, wherever the border between two of their parts is.
func FuzzPayloadAndMetadata(f *testing.F) {
	f.Add("type", "tenant", "a", "b", "p", uint8(3), 1)
	f.Add("type", "tenant", "", "ab", "p", uint8(3), 0)
	f.Add("type", "tenant", "=", "", "=", uint8(1), 1)
	f.Add("a", "ab", "\x00\x00\x00\x00\x00\x00\x00\x01=", "", "", uint8(2), 8)
	f.Add("", "", "\xff", "\xff", "\xff", uint8(3), 3)
	f.Fuzz(func(t *testing.T, key1, key2, value1, value2, payload string, present uint8, cut int) {
		fn := PayloadAndMetadataSHA256(key1, key2)
		type content struct {
			has1, has2              bool
			value1, value2, payload string
		}
		sum := func(c content) string {
			msg := message.NewMessage("m", []byte(c.payload))
			if c.has1 {
				msg.Metadata[key1] = c.value1
			}
			if c.has2 && key2 != key1 {
				msg.Metadata[key2] = c.value2
			}
			msg.Metadata["not a chosen key: "+key1+key2] = payload
			fingerprint, err := fn(msg)
			require.NoError(t, err)
			_, err = fingerprint.encode()
			require.NoError(t, err)
			return fingerprint.String()
		}

		// All ways to spread the same bytes over the parts.
		all := value1 + value2 + payload
		cut = min(max(cut, 0), len(all))
		seen := map[string]content{}
		for _, c := range []content{
			{present&1 != 0, present&2 != 0, value1, value2, payload},
			{true, true, all[:cut], all[cut:], ""},
			{true, true, all[cut:], "", all[:cut]},
			{true, false, all[:cut], "", all[cut:]},
			{false, true, "", all[:cut], all[cut:]},
			{false, false, "", "", all},
			{true, true, "", "", all},
		} {
			if !c.has1 {
				c.value1 = ""
			}
			if !c.has2 || key1 == key2 {
				c.has2, c.value2 = false, ""
			}
			s := sum(c)
			if before, ok := seen[s]; ok {
				require.Equal(t, before, c, "two contents have one sum")
			}
			seen[s] = c
		}
	})
}

// Functions of different sets of keys have different names, so their sums are never compared.
func FuzzMetadataKeys(f *testing.F) {
	f.Add("a", "b", "ab", "")
	f.Add("a", "b", "b", "a")
	f.Add("a", "a", "a", "")
	f.Add("", "a", "a", "\x00")
	f.Add("\x00\x00\x00\x00\x00\x00\x00\x01a", "", "a", "")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		name := func(keys ...string) string {
			fingerprint, err := PayloadAndMetadataSHA256(keys...)(message.NewMessage("m", nil))
			require.NoError(t, err)
			return fingerprint.Name
		}
		require.Equal(t, name(a, b), name(b, a, b))
		same := (a == c && b == d) || (a == d && b == c)
		require.Equal(t, same, name(a, b) == name(c, d), "%q and %q", []string{a, b}, []string{c, d})
		require.Equal(t, a == b, name(a, b) == name(a))
	})
}
