// Package inboxredis gives messages that come through watermill-redisstream an id that is the same on every delivery, whoever added them.
//
//	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{Unmarshaller: inboxredis.Marshaller{}, ...}, logger)
//	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Marshaller: inboxredis.Marshaller{}, ...}, logger)
//
// The default unmarshaller of watermill-redisstream reads only what Watermill's publishers write. An entry of another producer (XADD orders * id 1 amount 5)
// is an error before any middleware, and ends the subscription: its channel is closed, and a Router without other handlers stops. The
// entry stays pending and ends in the same way the subscription of each consumer that claims it; no poison queue sees it.
//
// Here the UUID is
//
//  1. the field _watermill_message_uuid, if it is not empty,
//  2. otherwise the field Marshaller.IDField ("id"),
//  3. otherwise empty, and the inbox refuses the message with inbox.ErrNoIdentity, which is poison. No id is made up: it would be another one
//     on each delivery.
//
// Redis stores an entry with its fields, so both are the same on each delivery, and where a producer adds its message once more.
//
// # Fields
//
// An entry with the field _watermill_message_uuid is Watermill's, and read as ever. Of any other entry the payload is in the field
// Marshaller.PayloadField ("payload"), and all other fields are metadata. All bytes are kept. Of a field that occurs twice the client keeps the last value.
//
// Without a field for the payload it is empty, and so is what the inbox compares when an id comes again. Name the fields of the content then:
//
//	Fingerprint: inbox.PayloadAndMetadataSHA256("amount", "article")
//
// # The entry's id is not to be had
//
// Redis gives each entry an id (1526919030474-0). An Unmarshaller gets the fields only, and the subscriber puts the entry's id neither into the
// metadata nor into the context. It would be a poor identity: each XADD makes another one, also when a producer repeats a message because
// it got no answer. Producers have to add an id of their own.
//
// # What the subscriber has to be told
//
// ConsumerGroup: without it there are no acks, and what comes while the consumer is down is by default never delivered.
//
// MaxIdleTime (60 s) is the time after which a message that is not acked is taken from its consumer, dead or only slow. Keep it above
// inbox.Config.TxTimeout (25 s). It runs from the moment when the message was read, and the subscriber reads up to two messages ahead, so
// leave room for three handlers. A slow consumer claims its own message, too, and gets it again after the handler's end. A delivery
// that comes while another consumer's handler still runs waits for its transaction, and is then a duplicate.
//
// NackResendSleep: by default a nacked message comes again at once. It comes to the same consumer, without end, and nothing else does meanwhile: move poison away with
// PoisonQueueWithFilter(…, inbox.IsPoison). From the second time on its context is no longer that of the subscription.
//
// Close takes back the message whose handler still runs. What the handler then commits is not acked; it comes again, after MaxIdleTime, as a duplicate.
//
// # What Redis does not protect
//
// Trimming a stream (PublisherConfig.Maxlens and DefaultMaxlen, XTRIM, XDEL) takes away entries that are pending or not yet read. They are lost: neither
// processed nor in the inbox. Let streams be longer than the longest outage. The same is true of what Redis has not
// written to disk, or not to the replica that takes over; what is lost of acks makes duplicates.
package inboxredis
