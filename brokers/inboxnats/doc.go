// Package inboxnats gives messages that come through watermill-nats an id that is the same on every delivery, whoever published them.
//
//	subscriber, err := nats.NewSubscriber(nats.SubscriberConfig{Unmarshaler: inboxnats.Marshaler{}, ...}, logger)
//	publisher, err := nats.NewPublisher(nats.PublisherConfig{Marshaler: inboxnats.Marshaler{}, ...}, logger)
//
// The default marshaler of watermill-nats takes the message's UUID from a header that only Watermill's publishers write, and drops
// Nats-Msg-Id, where other producers put their id. Behind an inbox all their messages are refused with inbox.ErrNoIdentity. Here the UUID is
//
//  1. the header _watermill_message_uuid, if it is not empty,
//  2. otherwise the header Nats-Msg-Id,
//  3. otherwise empty, and the inbox refuses the message. No id is made up: it would be another one on each delivery.
//
// JetStream stores a message with its headers, so both are the same on each redelivery, on each consumer and after a restart. A
// message with its id elsewhere needs an inbox.IdentityFunc, which finds all headers in the metadata.
//
// # Which package of watermill-nats
//
// Its authors recommend pkg/nats with JetStream for production and call pkg/jetstream beta. Marshaler is for the former, JetStream for the
// latter; both are tested against a server. Producers that use GobMarshaler or JSONMarshaler of watermill-nats have the UUID in the payload:
// keep that marshaler, the UUID is as stable.
//
// # What the server has to be told
//
// A subscriber of pkg/nats needs nats.ManualAck() in JetStreamConfig.SubscribeOptions. Without it nats.go acks whatever the subscriber
// gives up: the message whose handler runs longer than AckWaitTimeout, those in flight at Close, those that cannot be unmarshaled. Their
// transactions are rolled back and no redelivery comes: they are lost, with an inbox as without one.
//
// Make the consumer before you subscribe (AddConsumer), with the name that DurablePrefix or DurableCalculator gives. A consumer that the subscription itself
// has made, durable or not, is deleted when it ends; the next one starts with all messages of the stream, which an inbox
// recognises as far back as its retention goes, or with DeliverNew misses what came in between.
//
// AckWait of the consumer (default 30 s) and AckWaitTimeout of the subscriber (30 s) are two clocks. Give them the same value, above
// inbox.Config.TxTimeout (25 s). The time runs while a message waits in the client, too, and one subscription handles one message at a time: keep
// MaxAckPending near SubscribersCount. A redelivery that comes while the first handler still runs waits for its transaction, and is then a duplicate.
//
// When MaxDeliver is exhausted, or NakDelay ends with TermSignal, the server stops delivering. The message is neither processed nor acked: no
// row of the inbox tells of it, it stays in a stream with limits retention, and the server publishes an advisory. To have it processed, publish
// it again with the same id. Leave MaxDeliver unlimited and move poison away with PoisonQueueWithFilter(…, inbox.IsPoison) instead.
//
// Core NATS (JetStreamConfig.Disabled) knows no acks and repeats nothing. What fails there is lost.
//
// # JetStream's own deduplication is no inbox
//
// Marshaler.Marshal sets Nats-Msg-Id to the UUID, so the stream drops what is published again within its window (StreamConfig.Duplicates,
// two minutes by default). That saves work, and it ends there: it does not see redeliveries, nor a repetition after the window or on another
// stream, and it knows nothing of what the handler committed. It also compares ids of all producers of a stream: where ids are unique per
// producer only, the stream itself drops the second producer's message before any inbox could tell them apart.
//
// The publisher of pkg/jetstream takes no marshaler and sets no Nats-Msg-Id. It writes the UUID header, and copies the metadata to headers: a message
// that inherits Nats-Msg-Id from another one is dropped as its duplicate.
package inboxnats
