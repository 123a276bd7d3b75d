package inboxtest

import (
	"testing"

	"github.com/watermill-inbox/inbox"
)

var smokeCases = []testCase{
	{name: "I2_RepetitionDoesNotRunTheHandler", run: repetitionDoesNotRunTheHandler, variants: true},
}

func repetitionDoesNotRunTheHandler(t *testing.T, f *fixture) {
	c := f.consumer(t, inbox.Config{}, f.writes)
	for range 5 {
		wantAck(t, c.deliver(newMessage("m1")))
	}
	c.wantCalls(t, 1)
	f.want(t, rows{biz: 1, inbox: 1})
}
