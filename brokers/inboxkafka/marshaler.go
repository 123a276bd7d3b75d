package inboxkafka

import (
	"cmp"
	"maps"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
)

// DefaultIDHeader is where other producers put the id of a message, unless Marshaler says otherwise. Debezium's outbox event router does.
const DefaultIDHeader = "id"

// RecordKey is the metadata key of the record's key. A header with this name is not overwritten. There is none if the record has no key.
const RecordKey = "kafka_key"

// Marshaler is the MarshalerUnmarshaler of watermill-kafka for records of any producer. It reads what the default one writes, and the other
// way round, so either side can be changed first.
type Marshaler struct {
	// IDHeader is the header in which other producers put the id of a message, or RecordKey if they put it in the key. Default:
	// DefaultIDHeader.
	IDHeader string
}

// Marshal writes what the default marshaler writes, but RecordKey of the metadata becomes the record's key, so that a message keeps it on its way
// through a poison queue. Without RecordKey there is no key. Metadata under the name of the UUID's header are ignored.
func (Marshaler) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	key, hasKey := msg.Metadata[RecordKey]
	headers := maps.Clone(msg.Metadata)
	delete(headers, RecordKey)
	delete(headers, kafka.UUIDHeaderKey)

	record, err := kafka.DefaultMarshaler{}.Marshal(topic, &message.Message{UUID: msg.UUID, Metadata: headers, Payload: msg.Payload})
	if err == nil && hasKey {
		record.Key = sarama.ByteEncoder(key)
	}
	return record, err
}

// Unmarshal never fails, because a message that cannot be unmarshaled stops its partition and makes the group rebalance without end. All
// headers but Watermill's become metadata. Of a header that occurs several times the last one counts, also if its value is empty.
func (m Marshaler) Unmarshal(record *sarama.ConsumerMessage) (*message.Message, error) {
	msg := message.NewMessage("", record.Value)
	if record.Key != nil {
		msg.Metadata[RecordKey] = string(record.Key)
	}
	for _, header := range record.Headers {
		if header == nil {
			continue
		}
		if name := string(header.Key); name == kafka.UUIDHeaderKey {
			msg.UUID = string(header.Value)
		} else {
			msg.Metadata[name] = string(header.Value)
		}
	}
	if msg.UUID == "" {
		msg.UUID = msg.Metadata[cmp.Or(m.IDHeader, DefaultIDHeader)]
	}
	return msg, nil
}
