package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

var refusedCases = []testCase{
	{name: "T17_TooLongIdentities", run: tooLongIdentities},
	{name: "T17_TooLongHandlerName", run: tooLongHandlerName},
	{name: "T18_NoIdentity", run: noIdentity},
}

// countingBeginner counts the transactions of an inbox.
type countingBeginner struct {
	wsql.Beginner
	begun int
}

// BeginTx is for the Inbox.
func (b *countingBeginner) BeginTx(ctx context.Context, options *sql.TxOptions) (wsql.Tx, error) {
	b.begun++
	return b.Beginner.BeginTx(ctx, options)
}

// refuses delivers a message twice and wants it refused before any SQL.
func (f *fixture) refuses(t *testing.T, pool Pool, config inbox.Config, msg func() *message.Message, target error) error {
	t.Helper()
	counting := &countingBeginner{Beginner: pool.DB}
	pool.DB = counting
	c := f.consumerOn(t, pool, config, f.writesStep)

	var err error
	for range 2 {
		d := c.deliver(msg())
		wantNack(t, d)
		wantPermanent(t, d.err, target)
		err = d.err
	}
	c.wantCalls(t, 0)
	f.want(t, rows{})
	if counting.begun > 0 {
		t.Fatalf("%d transactions for a message that can be refused without", counting.begun)
	}
	return err
}

func tooLongIdentities(t *testing.T, f *fixture) {
	pool := f.pool(t, 1)
	long := strings.Repeat("x", inbox.MaxIDLength)
	for _, id := range []string{long + "1", long + "2", long + " ", long + "\x00", strings.Repeat("ä", inbox.MaxIDLength/2) + "x"} {
		err := f.refuses(t, pool, inbox.Config{}, func() *message.Message { return newMessage(id) }, inbox.ErrIdentityTooLong)
		wantNames(t, err, inbox.Error{Consumer: "billing", Identity: inbox.Identity{ID: id}, Stage: inbox.StageIdentity})
		wantWords(t, err, "the id has 513", "at most 512")
	}
	producer := strings.Repeat("p", inbox.MaxProducerLength+1)
	config := inbox.Config{Identity: fromMetadata}
	err := f.refuses(t, pool, config, func() *message.Message { return newMessageOf(producer, "m1") }, inbox.ErrIdentityTooLong)
	wantNames(t, err, inbox.Error{Consumer: "billing", Identity: inbox.Identity{Producer: producer, ID: "m1"}, Stage: inbox.StageIdentity})
	wantWords(t, err, "producer", "513", "512")
}

// tooLongHandlerName: New cannot know the names of handlers, so each delivery is refused.
func tooLongHandlerName(t *testing.T, f *fixture) {
	const prefix = "shop/"
	longest := strings.Repeat("h", inbox.MaxConsumerLength-len(prefix))
	box := f.newInbox(t, f.pool(t, 2), inbox.Config{ConsumerPrefix: prefix})
	r := newRouter(t, message.RouterConfig{})
	errs := r.errors()
	r.AddMiddleware(box.Middleware)
	for _, name := range []string{longest, longest + "1", longest + "2"} {
		r.AddConsumerHandler(name, name, r.broker, func(msg *message.Message) error { return f.write(msg.Context(), "any", 1) })
	}
	r.start(t)

	for _, name := range []string{longest + "1", longest + "2"} {
		wantNack(t, r.deliver(t, name, newMessage("m1")))
		err := receive(t, errs, "the handler's error")
		wantPermanent(t, err, inbox.ErrIdentityTooLong)
		wantWords(t, err, "consumer", "256", "255")
	}
	f.want(t, rows{})

	wantAck(t, r.deliver(t, longest, newMessage("m1")))
	f.want(t, rows{biz: 1, inbox: 1})
	f.wantStored(t, inbox.Row{Consumer: prefix + longest, ID: "m1"})
}

func noIdentity(t *testing.T, f *fixture) {
	pool := f.pool(t, 1)
	broken := errors.New("no header")
	fails := func(*message.Message) (inbox.Identity, error) { return inbox.Identity{ID: "made up"}, broken }
	for _, test := range []struct {
		id     string
		config inbox.Config
		words  []string
	}{
		{"", inbox.Config{}, []string{`""`, "Config.Identity"}},
		{"  \t\n", inbox.Config{}, []string{`"  \t\n"`}},
		{"\u00a0\u2003", inbox.Config{}, nil},
		{"", inbox.Config{Identity: inbox.WithProducer("shop", inbox.MessageUUID)}, []string{"shop"}},
		{"uuid", inbox.Config{Identity: inbox.FromMetadata("event_id")}, []string{"event_id"}},
		{"uuid", inbox.Config{Identity: fails}, []string{broken.Error()}},
		{"uuid", inbox.Config{Identity: func(*message.Message) (inbox.Identity, error) { return inbox.Identity{}, nil }}, []string{"uuid"}},
	} {
		err := f.refuses(t, pool, test.config, func() *message.Message { return newMessage(test.id) }, inbox.ErrNoIdentity)
		wantWords(t, err, append(test.words, `"billing"`, string(inbox.StageIdentity))...)
	}
	err := f.refuses(t, pool, inbox.Config{Identity: fails}, func() *message.Message { return newMessage("m1") }, broken)
	wantPermanent(t, err, inbox.ErrNoIdentity)
}
