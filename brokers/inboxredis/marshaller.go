package inboxredis

import (
	"cmp"
	"fmt"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
)

// Fields of stream entries, unless Marshaller says otherwise.
const (
	DefaultIDField      = "id"
	DefaultPayloadField = "payload"
)

// The fields that redisstream.DefaultMarshallerUnmarshaller writes.
const (
	uuidField     = redisstream.UUIDHeaderKey
	payloadField  = "payload"
	metadataField = "metadata"
)

// Marshaller is the MarshallerUnmarshaller of watermill-redisstream for entries of any producer. It writes what the default one writes, so
// either side can be changed first.
type Marshaller struct {
	redisstream.DefaultMarshallerUnmarshaller

	// IDField is the field in which other producers put the id of a message. Default: DefaultIDField.
	IDField string

	// PayloadField is the field that other producers' payload is in. Default: DefaultPayloadField. The payload of an entry without this
	// field is empty.
	PayloadField string
}

// Unmarshal never fails, because a message that cannot be unmarshaled ends the subscription. See the package for what it makes of which fields.
func (m Marshaller) Unmarshal(values map[string]any) (*message.Message, error) {
	fields := make(map[string]string, len(values))
	for name, value := range values {
		fields[name] = stringOf(value)
	}

	if uuid, ok := fields[uuidField]; ok {
		msg := m.unmarshalWatermill(fields)
		if uuid == "" {
			msg.UUID = fields[m.idField()]
		}
		return msg, nil
	}

	msg := message.NewMessage(fields[m.idField()], []byte(fields[m.payloadField()]))
	for name, value := range fields {
		if name != m.idField() && name != m.payloadField() {
			msg.Metadata[name] = value
		}
	}
	return msg, nil
}

// unmarshalWatermill reads what Watermill's publishers write. Metadata that are not in Watermill's encoding stay as they are, under the
// name of their field.
func (m Marshaller) unmarshalWatermill(fields map[string]string) *message.Message {
	msg, err := m.DefaultMarshallerUnmarshaller.Unmarshal(map[string]any{
		uuidField: fields[uuidField], payloadField: fields[payloadField], metadataField: fields[metadataField],
	})
	if err != nil {
		msg = message.NewMessage(fields[uuidField], []byte(fields[payloadField]))
		msg.Metadata[metadataField] = fields[metadataField]
	}
	if msg.Metadata == nil { // what the encoding of nil makes of it
		msg.Metadata = message.Metadata{}
	}
	delete(msg.Metadata, uuidField) // no publisher takes a message with it, not even for a poison queue
	return msg
}

func (m Marshaller) idField() string { return cmp.Or(m.IDField, DefaultIDField) }

func (m Marshaller) payloadField() string { return cmp.Or(m.PayloadField, DefaultPayloadField) }

// stringOf is for values that did not come from Redis, whose values are strings.
func stringOf(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case []byte:
		return string(value)
	default:
		return fmt.Sprint(value)
	}
}
