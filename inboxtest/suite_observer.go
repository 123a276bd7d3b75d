package inboxtest

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

var observerCases = []testCase{
	{name: "Observer_ToldOfEveryDelivery", run: observerIsTold},
	{name: "Observer_RedeliveryAge", run: redeliveryAge},
	{name: "Logger_DuplicatesAtDebug", run: duplicatesAtDebug},
}

// observerIsTold also tells mismatches and failures apart.
func observerIsTold(t *testing.T, f *fixture) {
	seen := &reports{}
	c := f.consumer(t, inbox.Config{Observer: seen}, func(msg *message.Message) ([]*message.Message, error) {
		switch msg.UUID {
		case "panics":
			panic(errHandler)
		case "fails":
			return nil, errHandler
		case "produces":
			return []*message.Message{newMessage("out")}, nil // and no topic
		}
		return f.writes(msg)
	})
	steps := []struct {
		msg  *message.Message
		want inbox.DeliveryReport
	}{
		{newMessage("m1"), inbox.DeliveryReport{Outcome: inbox.Processed, HandlerRuns: 1}},
		{newMessage("m1"), inbox.DeliveryReport{Outcome: inbox.Duplicate}},
		{newMessageWith("m1", "other"), inbox.DeliveryReport{Stage: inbox.StageCompare, Mismatch: true}},
		{newMessage("fails"), inbox.DeliveryReport{Stage: inbox.StageHandler, HandlerRuns: 1}},
		{newMessage("produces"), inbox.DeliveryReport{Stage: inbox.StageOutbox, HandlerRuns: 1}},
		{newMessage(" "), inbox.DeliveryReport{Stage: inbox.StageIdentity}},
		{newMessage("panics"), inbox.DeliveryReport{HandlerRuns: 1}},
		{newMessage("m2"), inbox.DeliveryReport{Outcome: inbox.Processed, HandlerRuns: 1}},
	}
	for n, step := range steps {
		d := c.deliver(step.msg)
		got := seen.last()
		if len(seen.all) != n+1 {
			t.Fatalf("%q: %d reports of %d deliveries", step.msg.UUID, len(seen.all), n+1)
		}
		if got.Err != d.err || got.Duration <= 0 || got.RedeliveryAge < 0 || got.RedeliveryAge > time.Minute { //nolint:errorlint // the very error
			t.Fatalf("%q: reported %+v; the delivery: %v", step.msg.UUID, got, d)
		}
		want := step.want
		want.Consumer, want.Identity = "billing", inbox.Identity{ID: step.msg.UUID}
		want.Err, want.Duration, want.RedeliveryAge = got.Err, got.Duration, got.RedeliveryAge
		if d.panic != nil {
			want.Stage = got.Stage
		}
		if got != want {
			t.Fatalf("%q: reported %+v, want %+v", step.msg.UUID, got, want)
		}
	}
	f.want(t, rows{biz: 2, inbox: 2})
}

// redeliveryAge must not depend on time zones and must not stay zero.
func redeliveryAge(t *testing.T, f *fixture) {
	seen := &reports{}
	c := f.consumer(t, inbox.Config{Observer: seen}, f.writes)
	wantAck(t, c.deliver(newMessage("m1")))
	if got := seen.last().RedeliveryAge; got != 0 {
		t.Fatalf("age %s of a first delivery, want none", got)
	}
	time.Sleep(1100 * time.Millisecond) // ages are whole seconds
	wantAck(t, c.deliver(newMessage("m1")))
	if got := seen.last().RedeliveryAge; got < time.Second || got > time.Minute {
		t.Fatalf("age %s of an identity that is a second old", got)
	}
	f.want(t, rows{biz: 1, inbox: 1})
}

// duplicatesAtDebug: a duplicate is the inbox at work, so it must not wake anybody.
func duplicatesAtDebug(t *testing.T, f *fixture) {
	logger := watermill.NewCaptureLogger()
	config := f.withDefaults(inbox.Config{Consumer: "billing"})
	box, err := inbox.New(f.pool(t, 2).DB, config, logger)
	if err != nil {
		t.Fatal(err)
	}
	handler := box.Middleware(f.writes)
	for range 4 {
		wantAck(t, deliver(handler, newMessage("m1")))
	}
	f.want(t, rows{biz: 1, inbox: 1})

	logged := logger.Captured()
	for _, level := range []watermill.LogLevel{watermill.InfoLogLevel, watermill.ErrorLogLevel} {
		if len(logged[level]) > 0 {
			t.Fatalf("logged %+v", logged[level])
		}
	}
	duplicates := 0
	for _, entry := range logged[watermill.DebugLogLevel] {
		if entry.Fields["consumer"] == "billing" && entry.Fields["message_id"] == "m1" {
			duplicates++
		}
	}
	if duplicates != 3 {
		t.Fatalf("%d entries of 3 duplicates at debug: %+v", duplicates, logged)
	}
}
