// Package inboxamqp gives messages that come through watermill-amqp an id that is the same on every delivery, whoever published them.
//
//	config := amqp.NewDurableQueueConfig(uri)
//	config.Marshaler = inboxamqp.Marshaler{} // of subscribers and publishers
//
// The default marshaler of watermill-amqp takes the message's UUID from a header that only Watermill's publishers write, so behind an inbox
// all messages of other producers are refused with inbox.ErrNoIdentity. Worse, it fails for every message that has a header other than a string,
// and the subscriber then nacks the message at once, for ever. RabbitMQ itself adds such headers: x-delivery-count to each redelivery
// from a quorum queue, x-death to each dead-lettered message.
//
// Here the UUID is
//
//  1. the header _watermill_message_uuid, if it is not empty,
//  2. otherwise the property message_id,
//  3. otherwise empty, and the inbox refuses the message. No id is made up: it would be another one on each delivery.
//
// RabbitMQ stores a message with its headers and properties, so both are the same on each redelivery and after dead-lettering. Where
// ids are unique per application only, put the application into the key:
//
//	Identity: inbox.WithProducerFromMetadata(inboxamqp.AppIDKey, inbox.MessageUUID)
//
// # Metadata
//
// Every header becomes metadata, as a string:
//
//	string, byte array   as it is
//	boolean              true, false
//	integer, decimal     12345, 123.45
//	float                the shortest text that reads back as the same number; NaN, +Inf, -Inf
//	timestamp            RFC 3339 in UTC: 2024-02-29T12:00:00Z
//	void                 the empty string
//	table, array         JSON with sorted keys; what JSON has no form for is a string: timestamps and infinities as above,
//	                     byte arrays in base64. Bytes that are not UTF-8 are replaced.
//
// Properties become metadata, too, unless they are empty or a header has the same name: see ContentTypeKey and those after it.
//
// # What differs between two deliveries
//
// All metadata are the same on each redelivery, except those that tell of the redelivery itself: x-delivery-count (quorum queues),
// x-death, x-first-death-* and x-last-death-* (dead-lettering), and _watermill_amqp_redelivered, which watermill-amqp
// adds. Leave them out of inbox.PayloadAndMetadataSHA256: with one of them in the fingerprint each redelivery is a mismatch.
//
// # What the broker has to be told
//
// A nack puts the message back into the queue at once. Let poison go aside with PoisonQueueWithFilter(…, inbox.IsPoison). A limit in the broker drops
// messages of which no row of the inbox tells, unless there is a dead-letter exchange: x-delivery-limit, which quorum queues of RabbitMQ 4 have
// by default, or NoRequeueOnNack of watermill-amqp.
//
// RabbitMQ closes the channel of a consumer that has not acked for consumer_timeout, 30 minutes by default, and delivers its messages
// again. Keep inbox.Config.TxTimeout (25 s) below it.
package inboxamqp
