package inbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Limits of a Fingerprint in bytes.
const (
	maxFingerprintName = 63
	maxFingerprintSum  = 64
)

// Fingerprint is a short sum of a message's content. It tells a redelivery from another message that was given an id
// already used.
type Fingerprint struct {
	// Name is the function that made the sum. Sums of different functions are never compared, so changing the
	// function is safe. At most 63 bytes, without a colon.
	Name string

	// Sum is the sum itself, at most 64 bytes.
	Sum []byte
}

// FingerprintFunc makes the fingerprint of a message. It must give the same sum for every delivery of one message, so
// it must leave out what a broker or a relay adds on the way. An error is permanent: the delivery is refused.
type FingerprintFunc func(msg *message.Message) (Fingerprint, error)

// PayloadSHA256 is the SHA-256 of the payload. It is the default.
func PayloadSHA256(msg *message.Message) (Fingerprint, error) {
	sum := sha256.Sum256(msg.Payload)
	return Fingerprint{Name: "sha256", Sum: sum[:]}, nil
}

// PayloadAndMetadataSHA256 is the SHA-256 of the payload and of the values of the given metadata keys. A missing key
// differs from an empty value. The name of the function depends on the set of keys, so it may be changed later.
func PayloadAndMetadataSHA256(keys ...string) FingerprintFunc {
	keys = slices.Clone(keys)
	slices.Sort(keys)
	keys = slices.Compact(keys)

	h := sha256.New()
	for _, key := range keys {
		writeField(h, key)
	}
	name := "sha256-metadata-" + hex.EncodeToString(h.Sum(nil)[:8])

	return func(msg *message.Message) (Fingerprint, error) {
		h := sha256.New()
		for _, key := range keys {
			value, ok := msg.Metadata[key]
			if ok {
				value = "=" + value
			}
			writeField(h, value)
		}
		h.Write(msg.Payload)
		return Fingerprint{Name: name, Sum: h.Sum(nil)}, nil
	}
}

// writeField writes a value so that no two lists of values give the same bytes.
func writeField(h hash.Hash, value string) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(value)))
	h.Write(length[:])
	io.WriteString(h, value) //nolint:errcheck // a hash never returns an error
}

// CanonicalJSONSHA256 is the SHA-256 of a JSON payload without insignificant white space and with sorted object keys, for
// producers that encode the same value differently on a republication. Numbers are compared as written, and of a key that occurs twice the last
// value counts. A payload that is not one JSON value, or whose text has more than one reading (invalid UTF-8, escaped
// surrogates), is compared byte by byte.
func CanonicalJSONSHA256(msg *message.Message) (Fingerprint, error) {
	decoder := json.NewDecoder(bytes.NewReader(msg.Payload))
	decoder.UseNumber()

	const name = "sha256-json"
	asBytes := func() (Fingerprint, error) {
		sum := sha256.Sum256(append([]byte{0}, msg.Payload...)) // no JSON text begins with a zero
		return Fingerprint{Name: name, Sum: sum[:]}, nil
	}

	if !utf8.Valid(msg.Payload) || bytes.Contains(bytes.ToLower(msg.Payload), []byte(`\ud`)) {
		return asBytes() // the decoder would replace what it cannot read
	}
	var value any
	if err := decoder.Decode(&value); err != nil {
		return asBytes()
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return asBytes()
	}
	canonical, err := json.Marshal(value)
	if err != nil {
		return Fingerprint{}, fmt.Errorf("canonical JSON: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return Fingerprint{Name: name, Sum: sum[:]}, nil
}

// NoFingerprint turns the check off: every message with a known id is a duplicate, whatever its content.
func NoFingerprint(*message.Message) (Fingerprint, error) {
	return Fingerprint{}, nil
}

// encode returns the form in which the fingerprint is stored: its name, a colon and the bytes of the sum.
func (f Fingerprint) encode() (string, error) {
	if f.Name == "" && len(f.Sum) == 0 {
		return "", nil
	}
	if f.Name == "" || len(f.Name) > maxFingerprintName || strings.Contains(f.Name, ":") {
		return "", fmt.Errorf("fingerprint: name %q is not 1 to %d bytes without a colon", f.Name, maxFingerprintName)
	}
	if len(f.Sum) == 0 || len(f.Sum) > maxFingerprintSum {
		return "", fmt.Errorf("fingerprint: %q has a sum of %d bytes, not 1 to %d", f.Name, len(f.Sum), maxFingerprintSum)
	}
	return f.Name + ":" + string(f.Sum), nil
}

// DecodeFingerprint reads the form in which a fingerprint is stored. It is lenient: what it cannot read is a fingerprint of an unknown function, comparable with none.
func DecodeFingerprint(stored string) Fingerprint {
	name, sum, ok := strings.Cut(stored, ":")
	if !ok {
		return Fingerprint{}
	}
	return Fingerprint{Name: name, Sum: []byte(sum)}
}

// Differs tells whether both fingerprints come from the same function and their sums are not the same.
func (f Fingerprint) Differs(other Fingerprint) bool {
	return f.Name != "" && f.Name == other.Name && !bytes.Equal(f.Sum, other.Sum)
}

// String returns the fingerprint for messages to people.
func (f Fingerprint) String() string {
	if f.Name == "" {
		return "none"
	}
	return f.Name + ":" + hex.EncodeToString(f.Sum)
}
