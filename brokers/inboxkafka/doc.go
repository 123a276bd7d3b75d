// Package inboxkafka gives messages that come through watermill-kafka an id that is the same on every delivery, whoever produced them.
//
//	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{Unmarshaler: inboxkafka.Marshaler{}, ...}, logger)
//	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Marshaler: inboxkafka.Marshaler{}, ...}, logger)
//
// The default marshaler of watermill-kafka takes the message's UUID from a header that only Watermill's publishers write, so behind an inbox
// all records of other producers are refused with inbox.ErrNoIdentity. Here the UUID is
//
//  1. the header _watermill_message_uuid, if it is not empty,
//  2. otherwise the header Marshaler.IDHeader ("id"),
//  3. otherwise empty, and the inbox refuses the message, which is poison. No id is made up: it would be another one on each delivery.
//
// Kafka stores a record with its headers, so both are the same on each delivery, and where a producer sends its message once more.
// CloudEvents have their id in two headers: use inbox.CloudEvents as Identity. For records without any id there is TopicPartitionOffset,
// whose limits you have to know.
//
// # Metadata
//
// Headers become metadata, with all bytes kept. A header may occur several times; the last one counts, as for the default marshaler and for
// lastHeader of Kafka's own client. The record's key is the metadata RecordKey. A tombstone has an empty payload, as an empty record has.
//
// # What the subscriber has to be told
//
// Consumer.Offsets.Initial of sarama is OffsetNewest, also in watermill-kafka. What is in the topic before the group has committed its first offset is then never
// delivered. Set sarama.OffsetOldest. A group that was away for longer than the broker keeps its offsets (offsets.retention.minutes, a week) then gets all
// that the topic still has, so identities have to be kept for as long as the topic keeps records.
//
// Offsets are committed after the ack, but only once a second (Consumer.Offsets.AutoCommit). What was acked in the last second before a crash comes
// again, as duplicates.
//
// There is no ack deadline. A handler may take as long as it likes, until a consumer joins the group or leaves it: then it has
// Consumer.Group.Rebalance.Timeout (60 s) to end. After that the message is delivered to another consumer while the first handler still runs, for a
// rebalance does not end the message's context. The second delivery waits for the first one's transaction, and is then a duplicate. Keep the
// timeout above inbox.Config.TxTimeout (25 s), so that the first consumer's ack still counts. A consumer that was killed is missed after
// Consumer.Group.Session.Timeout (10 s).
//
// A nacked message comes again after NackResendSleep (100 ms), to the same consumer, without end. All that is behind it in the partition waits.
// Move poison away with PoisonQueueWithFilter(…, inbox.IsPoison). A partition has one message in flight, so there are as many handlers at work as
// partitions.
//
// Close takes back the message whose handler still runs. What the handler then commits is not acked, and comes again as a duplicate.
//
// # What the publisher has to be told
//
// Producer.RequiredAcks of sarama is WaitForLocal: what only the leader has is lost with it, and the outbox no longer has it either. Set
// sarama.WaitForAll. The publisher repeats what got no answer; the records have the same UUID and are one message for the inbox.
//
// Make the topic before you subscribe, by SubscribeInitialize with InitializeTopicDetails or otherwise. A topic that the broker makes by itself has
// the broker's default number of partitions.
package inboxkafka
