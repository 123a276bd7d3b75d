package soak

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
)

// window is how many messages wait in the queue. Few, so that what is published soon comes to a consumer.
const window = 200

// deal puts the numbers of all copies into the sequence of their publication. The second copy of every other message follows the first at once,
// so that two consumers have them at the same time. All others come so late that a copy before has long been acked.
func deal(messages int) []int {
	type copyOf struct {
		number int
		at     float64
	}
	later := func() float64 { return 300 + 300*rand.Float64() }
	var all []copyOf
	for number := range messages {
		at := float64(number)
		for n := range copiesOfEach {
			if n == 1 && number%2 == 0 {
				at += 0.5
			} else if n > 0 {
				at += later()
			}
			all = append(all, copyOf{number, at})
		}
	}
	slices.SortStableFunc(all, func(a, b copyOf) int {
		if a.at < b.at {
			return -1
		}
		return 1
	})
	deck := make([]int, len(all))
	for i, dealt := range all {
		deck[i] = dealt.number
	}
	return deck
}

func newOrder(number int) *message.Message {
	payload, _ := json.Marshal(order{Number: number})
	return message.NewMessage(fmt.Sprintf("order-%d", number), payload)
}

// feed publishes the deck so that some of it is left at each kill and restart. Where the consumers are faster, it gives them more copies of what
// they had before. It returns the number of these when the deck is out and the faults are enough.
func (r *run) feed() (more int) {
	deck := deal(r.messages)
	for out := 0; out < len(deck) || !r.enough(); {
		var batch []*message.Message
		for room := window - r.ready(); len(batch) < room; {
			if out < r.due(len(deck)) {
				batch = append(batch, newOrder(deck[out]))
				out++
			} else if out > 0 {
				batch = append(batch, newOrder(deck[rand.IntN(out)]))
				more++
			} else {
				break
			}
		}
		require.NoError(r, r.broker.publish(batch))
		r.wait("orders to be published", 10*time.Millisecond)
	}
	return more
}

// due is how much of the deck may be out by now. It is spread over all cycles of the database and the time after them. A cycle ends before its part
// is out, so that a crash meets messages that are new.
func (r *run) due(whole int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	cycle := 1.0
	if !r.upSince.IsZero() {
		cycle = min(1, time.Since(r.upSince).Seconds()/(restartAfter+commitsWithin).Seconds())
	}
	share := (float64(r.crashes+r.stops) + cycle) / float64(r.restarts+1)
	return int(min(1, share) * float64(whole))
}

func (r *run) ready() int {
	ready, err := r.broker.ready(r.config.Orders)
	require.NoError(r, err)
	return ready
}
