package redis

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/watermill-inbox/inbox"
)

// The default unmarshaller refuses an entry without Watermill's field. That ends the subscription. The entry is
// neither lost nor acked: it ends the subscription of each consumer that claims it, and nobody gets what comes after it.
func TestDefault_unmarshaller_ends_one_subscription_after_the_other(t *testing.T) {
	l := newLab(t)
	addEntry(t, l.client, l.name, map[string]any{"id": "raw"})
	watermill, err := redisstream.DefaultMarshallerUnmarshaller{}.Marshal(l.name, message.NewMessage("watermill", nil))
	require.NoError(t, err)

	for range 3 {
		subscriber := l.subscriber(func(c *redisstream.SubscriberConfig) {
			c.Unmarshaller, c.MaxIdleTime = redisstream.DefaultMarshallerUnmarshaller{}, 200*time.Millisecond
		})
		messages, err := subscriber.Subscribe(l.ctx, l.name)
		require.NoError(t, err)
		require.Nil(t, receive(l, messages), "the channel is closed")
		require.NoError(t, subscriber.Close())
		require.NotZero(t, l.pending())
	}

	// Nothing is lost: it comes to the next one that can read it.
	addEntry(t, l.client, l.name, watermill)
	l.run(l.subscriber(), nothing)
	ends := map[string]inbox.Outcome{}
	for len(ends) < 2 {
		report := receive(l, l.reports)
		require.NoError(t, report.Err)
		ends[report.Identity.ID] = report.Outcome
	}
	require.Equal(t, map[string]inbox.Outcome{"raw": inbox.Processed, "watermill": inbox.Processed}, ends)
	l.requireEffects(2)
}
