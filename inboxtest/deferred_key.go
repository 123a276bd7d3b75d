package inboxtest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/deferred"
)

var keyCases = []testCase{
	{name: "D3_OrderingKey", run: testOrderingKey, variants: true},
}

func testOrderingKey(t *testing.T, f *fixture) {
	var (
		mu    sync.Mutex
		order = map[string][]string{}
		busy  = map[string]bool{}
	)
	handler := func(msg *message.Message) error {
		key := msg.Metadata.Get("key")
		mu.Lock()
		overlap := busy[key]
		busy[key] = true
		mu.Unlock()
		defer func() {
			mu.Lock()
			busy[key] = false
			mu.Unlock()
		}()
		if overlap {
			return fmt.Errorf("two messages of key %s at once", key)
		}
		attempt, _ := deferred.Attempt(msg)
		if attempt == 1 && msg.Metadata.Get("fails") != "" {
			return fmt.Errorf("first attempt fails")
		}
		mu.Lock()
		defer mu.Unlock()
		if done := order[key]; len(done) == 0 || done[len(done)-1] != msg.UUID { // else the database gave way to another transaction
			order[key] = append(done, msg.UUID)
		}
		return nil
	}
	options := nodeOptions{receiver: deferred.ReceiverConfig{OrderingKey: func(msg *message.Message) string { return msg.Metadata.Get("key") }}}
	first, second := f.newNode(t, options, handler), f.newNode(t, options, handler)
	first.start(t)
	second.start(t)
	const each = 12
	for i := range each {
		var msgs []*message.Message
		for key := range 3 {
			msg := newMessage(fmt.Sprintf("%d-%02d", key, i))
			msg.Metadata.Set("key", fmt.Sprint(key))
			if i%5 == 1 {
				msg.Metadata.Set("fails", "yes")
			}
			msgs = append(msgs, msg)
		}
		first.store(t, msgs...)
	}
	f.waitForPending(t, 0)
	f.want(t, rows{biz: 3 * each, inbox: 3 * each})
	for key := range 3 {
		for i, id := range order[fmt.Sprint(key)] {
			if want := fmt.Sprintf("%d-%02d", key, i); id != want {
				t.Fatalf("key %d: %s came where %s should: %v", key, id, want, order[fmt.Sprint(key)])
			}
		}
	}
}
