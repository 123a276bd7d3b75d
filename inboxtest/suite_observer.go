package inboxtest

import (
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

var observerCases = []testCase{
	{name: "Observer_ToldOfEveryDelivery", run: observerIsTold},
	{name: "Observer_RedeliveryAge", run: redeliveryAge},
	{name: "Observer_Times", run: observerTimes},
	{name: "Observer_WaitForTheHolder", run: observerSeesTheWait},
	{name: "Observer_UnknownConsumerIsNotAnnounced", run: unknownConsumerIsNotAnnounced},
	{name: "Observer_PanicsChangeNothing", run: observerPanics},
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
		if len(seen.all) != n+1 || seen.announced("billing") != n+1 {
			t.Fatalf("%q: %d reports and %d announcements of %d deliveries", step.msg.UUID, len(seen.all), seen.announced("billing"), n+1)
		}
		if got.Err != d.err || got.Duration <= 0 || got.RedeliveryAge < 0 || got.RedeliveryAge > time.Minute { //nolint:errorlint // the very error
			t.Fatalf("%q: reported %+v; the delivery: %v", step.msg.UUID, got, d)
		}
		want := step.want
		want.Consumer, want.Identity = "billing", inbox.Identity{ID: step.msg.UUID}
		want.Err, want.Duration, want.RedeliveryAge = got.Err, got.Duration, got.RedeliveryAge
		want.BeginWait, want.IdentityWait, want.InTransaction = got.BeginWait, got.IdentityWait, got.InTransaction // see observerTimes
		if d.panic != nil {
			want.Stage = got.Stage
		}
		if got != want {
			t.Fatalf("%q: reported %+v, want %+v", step.msg.UUID, got, want)
		}
	}
	f.want(t, rows{biz: 2, inbox: 2})
}

// observerTimes checks how the times of a delivery relate to each other, whatever its end.
func observerTimes(t *testing.T, f *fixture) {
	seen := &reports{}
	var inHandler time.Duration
	c := f.consumer(t, inbox.Config{Observer: seen, OnMismatch: func(_ *message.Message, m *inbox.MismatchError) error {
		time.Sleep(20 * time.Millisecond) // in no transaction
		return m
	}}, func(msg *message.Message) ([]*message.Message, error) {
		start := time.Now()
		defer func() { inHandler = time.Since(start) }()
		time.Sleep(10 * time.Millisecond)
		switch msg.UUID {
		case "panics":
			panic(errHandler)
		case "fails":
			return nil, errHandler
		}
		return f.writes(msg)
	})
	for _, msg := range []*message.Message{newMessage("m1"), newMessage("m1"), newMessage("fails"), newMessage("panics")} {
		inHandler = 0
		c.deliver(msg)
		got := seen.last()
		if got.IdentityWait <= 0 || got.InTransaction < got.IdentityWait+inHandler || got.BeginWait < 0 || got.Duration < got.BeginWait+got.InTransaction {
			t.Fatalf("%q: the handler took %s; reported %+v", msg.UUID, inHandler, got)
		}
	}
	c.deliver(newMessageWith("m1", "other"))
	if got := seen.last(); !got.Mismatch || got.InTransaction <= 0 || got.Duration-got.InTransaction < 20*time.Millisecond {
		t.Fatalf("OnMismatch runs in no transaction: reported %+v", got)
	}
	c.deliver(newMessage(" "))
	if got := seen.last(); got.BeginWait != 0 || got.IdentityWait != 0 || got.InTransaction != 0 {
		t.Fatalf("there was no transaction: reported %+v", got)
	}
	f.want(t, rows{biz: 1, inbox: 1})
}

// observerSeesTheWait: a copy waits while the first delivery is being handled. Where there is one writer it waits in BEGIN.
func observerSeesTheWait(t *testing.T, f *fixture) {
	g, seen := newGate(), &reports{}
	c := f.consumer(t, inbox.Config{Observer: seen, WaitTimeout: patience}, func(msg *message.Message) ([]*message.Message, error) {
		g.pass()
		return f.writes(msg)
	})
	deliveries := make(chan []delivery, 1)
	go func() { deliveries <- c.deliverAll(copies(2, "m1")...) }()
	receive(t, g.entered, "the first copy to be handled")
	letGo := sync.OnceFunc(func() { close(g.open) })
	defer letGo()
	eventually(t, "both deliveries to be announced", func() bool { return seen.announced("billing") == 2 })
	f.waitForWaiters(t, 1)
	if n := seen.ended(); n != 0 {
		t.Fatalf("%d deliveries ended, want both in flight", n)
	}
	const wait = 300 * time.Millisecond
	time.Sleep(wait)
	letGo()
	receive(t, deliveries, "both copies")
	for _, report := range seen.all {
		// A third, because where nobody can tell that the copy waits, it may not have begun when it was announced.
		if waited := report.BeginWait + report.IdentityWait; report.Outcome == inbox.Duplicate && waited < wait/3 {
			t.Fatalf("waited about %s, reported %+v", wait, report)
		}
	}
	c.wantCalls(t, 1)
	f.want(t, rows{biz: 1, inbox: 1})
}

// unknownConsumerIsNotAnnounced, because nobody could tell which gauge to turn back.
func unknownConsumerIsNotAnnounced(t *testing.T, f *fixture) {
	seen := &reports{}
	config := f.withDefaults(inbox.Config{Observer: seen})
	config.Consumer = ""
	box, err := inbox.New(f.pool(t, 2).DB, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := deliver(box.Middleware(f.writes), newMessage("m1"))
	wantIs(t, d.err, inbox.ErrNoConsumer)
	if got := seen.last(); got.Consumer != "" || len(seen.all) != 1 || len(seen.starts) != 0 {
		t.Fatalf("announced %q, reported %+v", seen.starts, seen.all)
	}
}

// panicking is an Observer with a fault.
type panicking struct{}

func (panicking) ObserveStart(string)                  { panic("start") }
func (panicking) ObserveDelivery(inbox.DeliveryReport) { panic("end") }

func observerPanics(t *testing.T, f *fixture) {
	logger := watermill.NewCaptureLogger()
	box, err := inbox.New(f.pool(t, 2).DB, f.withDefaults(inbox.Config{Consumer: "billing", Observer: panicking{}}), logger)
	if err != nil {
		t.Fatal(err)
	}
	wantAck(t, deliver(box.Middleware(f.writes), newMessage("m1")))
	if logged := logger.Captured()[watermill.ErrorLogLevel]; len(logged) != 2 {
		t.Fatalf("logged %+v, want both panics", logged)
	}
	f.want(t, rows{biz: 1, inbox: 1})
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
