package inbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Identity names one message among all messages that one consumer receives.
// Both parts are opaque bytes and compared exactly.
type Identity struct {
	// Producer is the namespace of the ID. It is empty when ids are unique among all producers.
	Producer string

	// ID is the message's identity, the same on every redelivery, republication and replay.
	ID string
}

// IdentityFunc extracts the identity of a message. It must not invent one: an id that differs between two deliveries
// of one message protects nothing. Return an error, or an empty ID, when the message carries none; the delivery
// then fails with ErrNoIdentity.
type IdentityFunc func(msg *message.Message) (Identity, error)

// MessageUUID takes the message's UUID as its identity. It is the default.
//
// Watermill's subscribers read the UUID from what Watermill's publishers wrote. Messages of other producers often
// have none, and the delivery fails with ErrNoIdentity; use FromMetadata or CloudEvents for those.
func MessageUUID(msg *message.Message) (Identity, error) {
	return Identity{ID: msg.UUID}, nil
}

// FromMetadata takes the value of a metadata key as the identity.
func FromMetadata(key string) IdentityFunc {
	return func(msg *message.Message) (Identity, error) {
		id, ok := msg.Metadata[key]
		if !ok {
			return Identity{}, fmt.Errorf("metadata has no key %q", key)
		}
		return Identity{ID: id}, nil
	}
}

// WithProducer puts the identities of identity into the namespace of one fixed producer.
func WithProducer(producer string, identity IdentityFunc) IdentityFunc {
	return func(msg *message.Message) (Identity, error) {
		id, err := identity(msg)
		id.Producer = producer
		return id, err
	}
}

// WithProducerFromMetadata puts the identities of identity into the namespace that a metadata key names. A message
// without the key, or with an empty value, has no identity: falling back to no namespace would mix the producers.
func WithProducerFromMetadata(key string, identity IdentityFunc) IdentityFunc {
	return func(msg *message.Message) (Identity, error) {
		producer := msg.Metadata[key]
		if producer == "" {
			return Identity{}, fmt.Errorf("metadata has no producer in key %q", key)
		}
		id, err := identity(msg)
		id.Producer = producer
		return id, err
	}
}

// cloudEventsPrefixes are the prefixes of CloudEvents attributes in the protocol bindings for Kafka, HTTP (as sent
// and as Go's net/http spells it) and AMQP.
var cloudEventsPrefixes = []string{"ce_", "ce-", "Ce-", "cloudEvents:", "cloudEvents_"}

// CloudEvents takes a CloudEvents event's source as producer and its id as id, which together identify an event. The
// attributes are read from the metadata (binary mode of the Kafka, HTTP and AMQP bindings) or, if it has none, from a JSON
// payload (structured mode).
func CloudEvents(msg *message.Message) (Identity, error) {
	for _, prefix := range cloudEventsPrefixes {
		id, source := cloudEventsAttribute(msg, prefix, "id"), cloudEventsAttribute(msg, prefix, "source")
		if id != "" && source != "" {
			return Identity{Producer: source, ID: id}, nil
		}
	}

	var event struct {
		SpecVersion exactText `json:"specversion"`
		ID          exactText `json:"id"`
		Source      exactText `json:"source"`
	}
	if err := json.Unmarshal(msg.Payload, &event); err != nil || !utf8.Valid(msg.Payload) ||
		event.SpecVersion == "" || event.ID == "" || event.Source == "" {
		return Identity{}, errors.New("no CloudEvents id and source in the metadata, nor an event in a JSON payload")
	}
	return Identity{Producer: string(event.Source), ID: string(event.ID)}, nil
}

// exactText is a JSON string that must not be read from half of a surrogate pair (\ud800): the decoder makes U+FFFD of all of those, and
// so one text of many.
type exactText string

// UnmarshalJSON is for encoding/json.
func (t *exactText) UnmarshalJSON(encoded []byte) error {
	if err := json.Unmarshal(encoded, (*string)(t)); err != nil {
		return err
	}
	for _, escape := range jsonEscapes.FindAll(encoded, -1) {
		if len(escape) == len(`\ud800`) {
			return fmt.Errorf("%s is half of a surrogate pair", escape)
		}
	}
	return nil
}

// jsonEscapes finds pairs of surrogates, surrogates without the other half, and all other escapes, each with a length of its own.
var jsonEscapes = regexp.MustCompile(`\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[dD][89a-fA-F]..|\\.`)

func cloudEventsAttribute(msg *message.Message, prefix, name string) string {
	if prefix == "Ce-" {
		name = strings.ToUpper(name[:1]) + name[1:]
	}
	return msg.Metadata[prefix+name]
}
