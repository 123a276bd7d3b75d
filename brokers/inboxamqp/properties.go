package inboxamqp

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Keys of metadata for the properties of AMQP messages. A header with the name of a key is not overwritten.
const (
	ContentTypeKey     = "amqp_content_type"
	ContentEncodingKey = "amqp_content_encoding"
	ReplyToKey         = "amqp_reply_to"
	TypeKey            = "amqp_type"
	AppIDKey           = "amqp_app_id"

	// TimestampKey has the time in RFC 3339, in UTC.
	TimestampKey = "amqp_timestamp"

	// CorrelationIDKey is the key of Watermill's middleware CorrelationID.
	CorrelationIDKey = middleware.CorrelationIDMetadataKey
)

func addProperties(metadata message.Metadata, delivery amqp091.Delivery) {
	add := func(key, value string) {
		if _, taken := metadata[key]; !taken && value != "" {
			metadata[key] = value
		}
	}
	add(ContentTypeKey, delivery.ContentType)
	add(ContentEncodingKey, delivery.ContentEncoding)
	add(ReplyToKey, delivery.ReplyTo)
	add(TypeKey, delivery.Type)
	add(AppIDKey, delivery.AppId)
	add(CorrelationIDKey, delivery.CorrelationId)
	if !delivery.Timestamp.IsZero() {
		add(TimestampKey, formatTime(delivery.Timestamp))
	}
}

func setProperties(publishing *amqp091.Publishing, metadata message.Metadata) {
	set := func(property *string, key string) {
		if value := metadata[key]; len(value) <= maxShortString {
			*property = value
		}
	}
	set(&publishing.ContentType, ContentTypeKey)
	set(&publishing.ContentEncoding, ContentEncodingKey)
	set(&publishing.ReplyTo, ReplyToKey)
	set(&publishing.Type, TypeKey)
	set(&publishing.AppId, AppIDKey)
	set(&publishing.CorrelationId, CorrelationIDKey)
	if sent, err := time.Parse(time.RFC3339, metadata[TimestampKey]); err == nil {
		publishing.Timestamp = sent
	}
}
