package inboxkafka

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// TopicPartitionOffset takes the place of a record in Kafka as its identity: "<partition>/<offset>", in the namespace
// "<epoch>/<topic>". It is the last resort, for producers that give their messages no id at all.
//
// It recognises what Kafka itself delivers again: after a nack, a lost ack, a rebalance, a crash of the consumer, or when the group is
// reset to an earlier offset. It recognises nothing that gets another place, and the effect is committed once more:
//
//   - a producer without enable.idempotence repeats a send that got no answer, or any producer publishes its message again;
//   - records are mirrored to another cluster or topic, or the topic is repartitioned by copying it;
//   - a message is replayed from another topic: a retry topic, a poison queue, an archive.
//
// Worse, where a place is used twice, a NEW MESSAGE IS TAKEN FOR AN OLD ONE: it is acked unprocessed and lost. (The default
// fingerprint detects it unless the payloads are equal, and refuses the new message with a *inbox.MismatchError.) That happens when
//
//   - the topic is deleted and made again, or the cluster is rebuilt or failed over to: offsets start at 0 once more;
//   - an unclean leader election, or a crash of all replicas before they wrote to disk, cuts off the end of a log that consumers had read;
//   - one consumer's inbox serves topics of the same name in two clusters.
//
// The epoch is there against that. It names this generation of the topic in this cluster, such as "eu-1/2024-05". It must change, for all
// instances at once, whenever offsets may have been used before, and at no other time: with another epoch no earlier message is recognised.
// TopicPartitionOffset panics if epoch is empty.
//
// The message must come from watermill-kafka through a Router, whose context it reads. Without them there is no identity. Kafka
// promises nothing of the sort to a context that is handed on: with a GoChannel that preserves contexts all messages made from
// one record would share its identity.
func TopicPartitionOffset(epoch string) inbox.IdentityFunc {
	if epoch == "" {
		panic("inboxkafka: TopicPartitionOffset: the epoch is empty")
	}
	return func(msg *message.Message) (inbox.Identity, error) {
		ctx := msg.Context()
		partition, hasPartition := kafka.MessagePartitionFromCtx(ctx)
		offset, hasOffset := kafka.MessagePartitionOffsetFromCtx(ctx)
		if !hasPartition || !hasOffset {
			return inbox.Identity{}, errors.New("no partition and offset in the context: the message is not from watermill-kafka")
		}
		topic := message.SubscribeTopicFromCtx(ctx)
		if topic == "" {
			return inbox.Identity{}, errors.New("no topic in the context: the message did not come through a Router")
		}
		// A topic has no slash, so the last one ends the epoch.
		return inbox.Identity{Producer: epoch + "/" + topic, ID: fmt.Sprintf("%d/%d", partition, offset)}, nil
	}
}
