package main

import (
	"time"

	"github.com/watermill-inbox/inbox/deferred"
)

// messageReport is a message in JSON. A field with base64 is there only where the one before it is not exact, because the bytes are not UTF-8.
type messageReport struct {
	Number            int64     `json:"number"`
	State             string    `json:"state"`
	Consumer          string    `json:"consumer"`
	ConsumerBase64    []byte    `json:"consumer_base64,omitempty"`
	Topic             string    `json:"topic"`
	TopicBase64       []byte    `json:"topic_base64,omitempty"`
	Producer          string    `json:"producer"`
	ProducerBase64    []byte    `json:"producer_base64,omitempty"`
	ID                string    `json:"id"`
	IDBase64          []byte    `json:"id_base64,omitempty"`
	UUID              string    `json:"uuid"`
	OrderingKey       string    `json:"ordering_key"`
	OrderingKeyBase64 []byte    `json:"ordering_key_base64,omitempty"`
	Attempts          int       `json:"attempts"`
	Received          time.Time `json:"received"`
	Due               time.Time `json:"due"`
	Bytes             int       `json:"bytes"`
	Reason            string    `json:"reason"`
	LastError         string    `json:"last_error"`
}

type messageList struct {
	Messages  []messageReport `json:"messages"`
	NextAfter *int64          `json:"next_after,omitempty"` // if there may be more
}

func reportOf(m deferred.StoredMessage) messageReport {
	return messageReport{
		Number:   m.Number,
		State:    m.State.String(),
		Consumer: text(m.Consumer), ConsumerBase64: exact(m.Consumer),
		Topic: text(m.Topic), TopicBase64: exact(m.Topic),
		Producer: text(m.Identity.Producer), ProducerBase64: exact(m.Identity.Producer),
		ID: text(m.Identity.ID), IDBase64: exact(m.Identity.ID),
		UUID:        text(m.UUID),
		OrderingKey: text(m.OrderingKey), OrderingKeyBase64: exact(m.OrderingKey),
		Attempts:  m.Attempts,
		Received:  m.Received.UTC(),
		Due:       m.Due.UTC(),
		Bytes:     m.Size,
		Reason:    text(m.Reason),
		LastError: text(m.LastError),
	}
}
