package inboxtest

import (
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox"
)

// incoming is the topic from which services receive.
const incoming = "incoming"

// service is one handler of a Router, from topic incoming to topic outgoing, behind an inbox.
type service struct {
	*router
	inbox    *inbox.Inbox
	log      *watermill.CaptureLoggerAdapter // of the inbox
	reports  *reports
	calls    atomic.Int64  // of the handler
	finished chan delivery // what left the outermost middleware
}

// serviceOptions are what makes a service differ from others.
type serviceOptions struct {
	pool      Pool // zero: one of its own with four connections
	config    inbox.Config
	outside   []message.HandlerMiddleware // around the inbox, the first one outermost
	inside    []message.HandlerMiddleware
	publisher message.Publisher // of the Router; nil: Inbox.Publisher
}

func (f *fixture) service(t *testing.T, options serviceOptions, handler message.HandlerFunc) *service {
	t.Helper()
	if options.pool.DB == nil {
		options.pool = f.pool(t, 4)
	}
	s := &service{
		router:   newRouter(t, message.RouterConfig{}),
		log:      watermill.NewCaptureLogger(),
		reports:  &reports{},
		finished: make(chan delivery, 100),
	}
	if options.config.Observer == nil {
		options.config.Observer = s.reports
	}
	var err error
	if s.inbox, err = inbox.New(options.pool.DB, f.withDefaults(options.config), s.log); err != nil {
		t.Fatalf("inbox.New: %v", err)
	}
	if options.publisher == nil {
		options.publisher = s.inbox.Publisher()
	}
	h := s.AddHandler("handler", incoming, s.broker, outgoing, options.publisher, func(msg *message.Message) ([]*message.Message, error) {
		s.calls.Add(1)
		return handler(msg)
	})
	h.AddMiddleware(s.finish)
	h.AddMiddleware(options.outside...)
	h.AddMiddleware(s.inbox.Middleware)
	h.AddMiddleware(options.inside...)
	s.start(t)
	return s
}

// finish is the outermost middleware.
func (s *service) finish(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		d := delivery{exited: true}
		defer func() { s.finished <- d }()
		produced, d.err = next(msg)
		d.exited = false
		return produced, d.err
	}
}

// deliver sends msg to the handler and waits until it has returned and the Router has acked or nacked. It is for one
// message at a time.
func (s *service) deliver(t *testing.T, msg *message.Message) delivery {
	t.Helper()
	s.broker.send(incoming, msg)
	d := receive(t, s.finished, "the delivery to finish")
	eventually(t, "an ack or a nack from the Router", func() bool { return closed(msg.Acked()) || closed(msg.Nacked()) })
	d.acked, d.nacked = closed(msg.Acked()), closed(msg.Nacked())
	return d
}

func (s *service) wantCalls(t *testing.T, want int64) {
	t.Helper()
	if got := s.calls.Load(); got != want {
		t.Fatalf("the handler ran %d times, want %d", got, want)
	}
}
