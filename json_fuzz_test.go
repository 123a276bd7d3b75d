package inbox_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

var jsonSeeds = []string{
	`{"a":1,"b":[1,2,{"c":null}]}`, ` {"b":[1,2,{"c":null}], "a":1} `, `{"a":1,"a":2}`, `{"a":2}`, `{"a":1.0}`, `{"a":1e0}`, `-0`, `0`, `1 2`, `12`,
	"", " ", "{", "nul", "null", `"null"`, `[]`, `[[]]`, `{}`, `""`, `"a"`, `"\u0061"`, `"\u0000"`, "\"\x00\"", `"<>&"`, `"\u003c>&"`, "\"\u2028\"",
	`"\ud800"`, `"\ud801"`, `"\uD83D\uDE00"`, `"😀"`, "\"\ufffd\"", `"\ufffd"`, `"\\ud800"`, "\"\xff\"", "\"\xfe\"", "\ufeff{}", "\x00{}", "\xff",
	`{"\ud800":1}`, `{"\ud801":1}`, `{"K":1}`, `1e400`, `1E400`, `123456789012345678901234567890`, `{"a":{"a":{"a":{}}}}`,
}

// CanonicalJSONSHA256 never fails; the order of keys and white space make no difference, everything else does.
func FuzzCanonicalJSON(f *testing.F) {
	for n, seed := range jsonSeeds {
		f.Add([]byte(seed), []byte(jsonSeeds[(n+1)%len(jsonSeeds)]))
	}
	f.Fuzz(func(t *testing.T, payload, other []byte) {
		sum := canonicalSum(t, payload)
		for _, other := range [][]byte{other, bytes.ToLower(payload), bytes.TrimSpace(payload), append(slices.Clone(payload), 'x')} {
			if canonicalSum(t, other) == sum && !bytes.Equal(payload, other) {
				one, ok1 := exactJSON(payload)
				two, ok2 := exactJSON(other)
				require.True(t, ok1 && ok2 && reflect.DeepEqual(one, two), "%q and %q have one sum", payload, other)
			}
		}
		if value, ok := exactJSON(payload); ok && !bytes.Contains(bytes.ToLower(payload), []byte(`\ud`)) {
			require.Equal(t, sum, canonicalSum(t, turned(value)), "%q and %q differ", payload, turned(value))
		}
	})
}

func canonicalSum(t *testing.T, payload []byte) string {
	t.Helper()
	before := slices.Clone(payload)
	fingerprint, err := inbox.CanonicalJSONSHA256(message.NewMessage("m", payload))
	require.NoError(t, err)
	require.Equal(t, "sha256-json", fingerprint.Name)
	require.Len(t, fingerprint.Sum, 32)
	require.True(t, bytes.Equal(before, payload), "the payload was changed")
	return fingerprint.String()
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// exactJSON decodes one JSON value of which every string is the hexadecimal form of its UTF-16 units, so that none is altered. It does not read
// what is not UTF-8.
func exactJSON(payload []byte) (value any, ok bool) {
	if !utf8.Valid(payload) || !json.Valid(payload) {
		return nil, false
	}
	exact := jsonString.ReplaceAllFunc(payload, func(text []byte) []byte {
		return []byte(strconv.Quote(hex.EncodeToString(unitsOf(string(text[1 : len(text)-1])))))
	})
	decoder := json.NewDecoder(bytes.NewReader(exact))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, false
	}
	_, err := decoder.Token()
	return value, err == io.EOF //nolint:errorlint // it is EOF itself
}

// unitsOf returns the UTF-16 units, two bytes each, of the text between the quotes of a valid JSON string.
func unitsOf(raw string) (units []byte) {
	add := func(unit uint16) { units = append(units, byte(unit>>8), byte(unit)) }
	for len(raw) > 0 {
		if raw[0] != '\\' {
			r, size := utf8.DecodeRuneInString(raw)
			for _, unit := range utf16.Encode([]rune{r}) {
				add(unit)
			}
			raw = raw[size:]
			continue
		}
		if raw[1] == 'u' {
			unit, _ := strconv.ParseUint(raw[2:6], 16, 16)
			add(uint16(unit))
			raw = raw[6:]
			continue
		}
		escaped := map[byte]byte{'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}[raw[1]]
		if escaped == 0 {
			escaped = raw[1]
		}
		add(uint16(escaped))
		raw = raw[2:]
	}
	return units
}

// turned writes a value of exactJSON again, with the keys of objects in descending order, white space and every character escaped.
func turned(value any) []byte {
	switch value := value.(type) {
	case map[string]any:
		keys := make([]string, 0, len(value))
		for key := range value {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		slices.Reverse(keys)
		text := []byte("{\n")
		for n, key := range keys {
			if n > 0 {
				text = append(text, " ,\t"...)
			}
			text = append(append(append(text, turned(key)...), ": "...), turned(value[key])...)
		}
		return append(text, " }"...)
	case []any:
		text := []byte("[ ")
		for n, element := range value {
			if n > 0 {
				text = append(text, "\r, "...)
			}
			text = append(text, turned(element)...)
		}
		return append(text, "]\n"...)
	case string:
		text := []byte{'"'}
		for n := 0; n < len(value); n += 4 {
			unit := value[n : n+4]
			if unit[0] == 'd' { // a surrogate, which came as a pair in UTF-8
				units, _ := hex.DecodeString(value[n : n+8])
				text = utf8.AppendRune(text, utf16.DecodeRune(rune(units[0])<<8|rune(units[1]), rune(units[2])<<8|rune(units[3])))
				n += 4
				continue
			}
			text = append(append(text, `\u`...), unit...)
		}
		return append(text, '"')
	case json.Number:
		return []byte(value)
	default:
		text, _ := json.Marshal(value)
		return text
	}
}
