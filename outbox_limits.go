package inbox

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

// outboxLimits are what a schema of watermill-sql cannot store.
type outboxLimits struct {
	maxUUID     int                       // characters; 0: no limit
	payloadType func(topic string) string // nil: any payload
	maxPayload  map[string]int            // bytes that a type of payload column holds; not listed: no limit
}

// blobSizes are those of MySQL, which outside strict mode cuts what is longer, with nothing but a warning.
var blobSizes = map[string]int{"TINYBLOB": 1<<8 - 1, "BLOB": 1<<16 - 1, "MEDIUMBLOB": 1<<24 - 1}

// limitsOf knows the schemas of watermill-sql itself; schemas of others know their own limits.
func limitsOf(adapter wsql.SchemaAdapter) outboxLimits {
	const maxUUID = 36
	switch schema := adapter.(type) {
	case wsql.DefaultMySQLSchema:
		return outboxLimits{maxUUID, schema.PayloadColumnType, blobSizes}
	case *wsql.DefaultMySQLSchema:
		return outboxLimits{maxUUID, schema.PayloadColumnType, blobSizes}
	case wsql.MySQLQueueSchema:
		return outboxLimits{maxUUID, orJSON(schema.GeneratePayloadType), blobSizes}
	case *wsql.MySQLQueueSchema:
		return outboxLimits{maxUUID, orJSON(schema.GeneratePayloadType), blobSizes}
	case wsql.DefaultPostgreSQLSchema:
		return outboxLimits{maxUUID, schema.PayloadColumnType, nil}
	case *wsql.DefaultPostgreSQLSchema:
		return outboxLimits{maxUUID, schema.PayloadColumnType, nil}
	case wsql.PostgreSQLQueueSchema:
		return outboxLimits{maxUUID, orJSON(schema.GeneratePayloadType), nil}
	case *wsql.PostgreSQLQueueSchema:
		return outboxLimits{maxUUID, orJSON(schema.GeneratePayloadType), nil}
	default:
		return outboxLimits{}
	}
}

func orJSON(payloadType func(topic string) string) func(topic string) string {
	if payloadType != nil {
		return payloadType
	}
	return func(string) string { return "JSON" }
}

// limitedPublisher refuses what the table would refuse or alter, with an error that says what to do.
type limitedPublisher struct {
	message.Publisher
	limits outboxLimits
}

func (p limitedPublisher) Publish(topic string, msgs ...*message.Message) error {
	if len(msgs) == 0 {
		return nil // watermill-sql would send an incomplete statement, which aborts a PostgreSQL transaction
	}
	for _, msg := range msgs {
		if err := p.limits.check(topic, msg); err != nil {
			return fmt.Errorf("outgoing message %s to %s: %w", quote(msg.UUID), quote(topic), err)
		}
	}
	err := p.Publisher.Publish(topic, msgs...)
	if size := sizeOf(msgs[0]); err != nil && size > maxOutboxBytes {
		// MariaDB ends the connection, and what the driver says then is no help.
		err = fmt.Errorf("%w (message %s has %d bytes; MySQL and MariaDB take no statement beyond max_allowed_packet)",
			err, quote(msgs[0].UUID), size)
	}
	return err
}

func (l outboxLimits) check(topic string, msg *message.Message) error {
	if err := checkMetadata(msg); err != nil {
		return err
	}
	if l.maxUUID > 0 {
		if err := checkText("UUID", msg.UUID); err != nil {
			return err
		}
		if length := utf8.RuneCountInString(msg.UUID); length > l.maxUUID {
			return fmt.Errorf("UUID has %d characters and watermill-sql's column holds %d: shorten it, or use a schema with a wider column", length, l.maxUUID)
		}
	}
	if l.payloadType == nil {
		return nil
	}

	columnType := strings.ToUpper(strings.TrimSpace(l.payloadType(topic)))
	if strings.HasPrefix(columnType, "JSON") && !(utf8.Valid(msg.Payload) && json.Valid(msg.Payload)) {
		return fmt.Errorf("payload is not JSON and the payload column is %s: set GeneratePayloadType of the schema adapter (BYTEA, LONGBLOB)", columnType)
	}
	if limit, ok := l.maxPayload[columnType]; ok && len(msg.Payload) > limit {
		return fmt.Errorf("payload has %d bytes and the payload column, %s, holds %d: set GeneratePayloadType of the schema adapter to LONGBLOB",
			len(msg.Payload), columnType, limit)
	}
	return nil
}

// textPublisher is for a format that holds topic, UUID and metadata as text.
type textPublisher struct{ message.Publisher }

func (p textPublisher) Publish(topic string, msgs ...*message.Message) error {
	for _, msg := range msgs {
		err := checkText("topic", topic)
		if err == nil {
			err = checkText("UUID", msg.UUID)
		}
		if err == nil {
			err = checkMetadata(msg)
		}
		if err != nil {
			return fmt.Errorf("outgoing message %s to %s: %w", quote(msg.UUID), quote(topic), err)
		}
	}
	return p.Publisher.Publish(topic, msgs...)
}

// checkMetadata is for metadata that is stored as JSON. The encoder would put U+FFFD in the place of what is not UTF-8.
func checkMetadata(msg *message.Message) error {
	for key, value := range msg.Metadata {
		if err := checkText("metadata key", key); err != nil {
			return err
		}
		if err := checkText("metadata "+quote(key), value); err != nil {
			return err
		}
	}
	return nil
}

func checkText(what, text string) error {
	if utf8.ValidString(text) {
		return nil
	}
	return fmt.Errorf("%w: %s is not UTF-8: %s", ErrUnstorable, what, quote(text))
}
