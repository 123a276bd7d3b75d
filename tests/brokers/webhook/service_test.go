package webhook

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/watermill-inbox/inbox"
	"github.com/watermill-inbox/inbox/brokers/inboxhttp"
	"github.com/watermill-inbox/inbox/postgres"
)

// maxBody is the limit of the service's bodies.
const maxBody = 1000

// service receives webhooks.
type service struct {
	DSN     string
	Effects string // a table, of id and payload
	Inbox   string // a table

	handlerContext inbox.HandlerContext
	noAnswer       bool // without inboxhttp.Answer
	observer       inbox.Observer

	// received is called with each message before the inbox, does after the handler has written its effect, and committed before the ack of what was not
	// nacked. All may be nil.
	received  func(msg *message.Message)
	does      func(msg *message.Message, tx *sql.Tx) error
	committed func(msg *message.Message)

	runs atomic.Int32 // of the handler
}

// start returns the URL of the webhook.
func (s *service) start() (url string, stop func() error, err error) {
	db, err := sql.Open("pgx", s.DSN)
	if err != nil {
		return "", nil, err
	}
	box, err := inbox.New(wsql.BeginnerFromStdSQL(db), inbox.Config{
		Schema:         postgres.Schema{MessagesTable: s.Inbox},
		Consumer:       "webhook",
		HandlerContext: s.handlerContext,
		Observer:       s.observer,
	}, nil)
	if err != nil {
		return "", nil, err
	}
	subscriber, err := wmhttp.NewSubscriber("127.0.0.1:0", wmhttp.SubscriberConfig{
		UnmarshalMessageFunc: inboxhttp.Config{IDHeader: "Webhook-Id", MaxBody: maxBody}.Unmarshal,
	}, nil)
	if err != nil {
		return "", nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 20 * time.Second}, watermill.NopLogger{})
	if err != nil {
		return "", nil, err
	}
	if !s.noAnswer {
		router.AddMiddleware(inboxhttp.Answer)
	}
	router.AddMiddleware(s.watch, middleware.Recoverer, box.Middleware)
	router.AddConsumerHandler("webhook", "/webhook", subscriber, s.handle)

	go func() { _ = router.Run(context.Background()) }()
	<-router.Running()
	go func() { _ = subscriber.StartHTTPServer() }()
	for subscriber.Addr() == nil { // there is no signal
		time.Sleep(time.Millisecond)
	}
	return fmt.Sprintf("http://%s/webhook", subscriber.Addr()), func() error {
		defer db.Close()
		return router.Close()
	}, nil
}

func (s *service) watch(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		if s.received != nil {
			s.received(msg)
		}
		produced, err := h(msg)
		if err == nil && s.committed != nil {
			s.committed(msg)
		}
		return produced, err
	}
}

func (s *service) handle(msg *message.Message) error {
	s.runs.Add(1)
	tx, _ := inbox.StdTxFromContext(msg.Context())
	if _, err := tx.ExecContext(msg.Context(), "INSERT INTO "+s.Effects+" VALUES ($1, $2)", msg.UUID, string(msg.Payload)); err != nil {
		return err
	}
	if s.does == nil {
		return nil
	}
	return s.does(msg, tx)
}
