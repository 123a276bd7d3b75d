package inboxamqp

import (
	"cmp"

	"github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

var _ amqp.Marshaler = Marshaler{}

// Marshaler is the default marshaler of watermill-amqp for messages of any producer. It writes what the default marshaler writes, and
// properties in addition, so either side can be changed first.
type Marshaler struct {
	// DefaultMarshaler writes the message. All its options apply; MessageUUIDHeaderKey to both directions.
	amqp.DefaultMarshaler
}

// maxShortString is the length of most properties. The client cuts what is longer, which would make another id of it.
const maxShortString = 255

// Marshal also sets the property message_id to the UUID, for consumers that know nothing of Watermill, and the properties whose keys are in
// the metadata, so that a message keeps them on its way through a poison queue. What is longer than 255 bytes is in the headers only.
// PostprocessPublishing comes last.
func (m Marshaler) Marshal(msg *message.Message) (amqp091.Publishing, error) {
	before := m.DefaultMarshaler
	before.PostprocessPublishing = nil
	publishing, err := before.Marshal(msg)
	if err != nil {
		return amqp091.Publishing{}, err
	}
	if len(msg.UUID) <= maxShortString {
		publishing.MessageId = msg.UUID
	}
	setProperties(&publishing, msg.Metadata)
	if m.PostprocessPublishing != nil {
		publishing = m.PostprocessPublishing(publishing)
	}
	return publishing, nil
}

// Unmarshal never fails. A message without an id has an empty UUID. See the package for how headers become metadata.
func (m Marshaler) Unmarshal(delivery amqp091.Delivery) (*message.Message, error) {
	key := cmp.Or(m.MessageUUIDHeaderKey, amqp.DefaultMessageUUIDHeaderKey)
	id := stringOf(delivery.Headers[key])
	if id == "" {
		id = delivery.MessageId
	}

	msg := message.NewMessage(id, delivery.Body)
	for name, value := range delivery.Headers {
		if name != key {
			msg.Metadata[name] = stringOf(value)
		}
	}
	addProperties(msg.Metadata, delivery)
	return msg, nil
}
