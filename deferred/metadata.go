package deferred

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
)

// encodeMetadata makes JSON that an operator can read: an object of strings. Metadata that is not UTF-8 becomes a list of pairs in base64
// instead, because nothing may be lost.
func encodeMetadata(metadata message.Metadata) (string, error) {
	if len(metadata) == 0 {
		return "", nil
	}
	var value any = map[string]string(metadata)
	for key, text := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(text) {
			value = encodePairs(metadata)
			break
		}
	}
	encoded, err := json.Marshal(value)
	return string(encoded), err
}

func encodePairs(metadata message.Metadata) [][2]string {
	pairs := make([][2]string, 0, len(metadata))
	for key, text := range metadata {
		pairs = append(pairs, [2]string{base64.StdEncoding.EncodeToString([]byte(key)), base64.StdEncoding.EncodeToString([]byte(text))})
	}
	return pairs
}

func decodeMetadata(encoded []byte) (message.Metadata, error) {
	metadata := message.Metadata{}
	if len(encoded) == 0 {
		return metadata, nil
	}
	if encoded[0] != '[' {
		if err := json.Unmarshal(encoded, &metadata); err != nil {
			return nil, fmt.Errorf("stored metadata: %w", err)
		}
		return metadata, nil
	}
	var pairs [][2]string
	if err := json.Unmarshal(encoded, &pairs); err != nil {
		return nil, fmt.Errorf("stored metadata: %w", err)
	}
	for _, pair := range pairs {
		key, keyErr := base64.StdEncoding.DecodeString(pair[0])
		text, textErr := base64.StdEncoding.DecodeString(pair[1])
		if keyErr != nil || textErr != nil {
			return nil, fmt.Errorf("stored metadata: pair %q is not base64", pair)
		}
		metadata[string(key)] = string(text)
	}
	return metadata, nil
}
