package inboxtest

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/watermill-inbox/inbox/inboxcqrs"
)

// cqrsEffect is what a handler of a processor does.
type cqrsEffect func(ctx context.Context, event *orderPlaced) error

func addCommand(r *router, topic string, effect cqrsEffect) error {
	processor, err := cqrs.NewCommandProcessorWithConfig(r.Router, cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return topic, nil },
		SubscriberConstructor: func(cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return r.broker, nil
		},
		OnHandle:  inboxcqrs.OnCommand(nil),
		Marshaler: cqrs.JSONMarshaler{},
	})
	if err != nil {
		return err
	}
	return processor.AddHandlers(cqrs.NewCommandHandler(topic, effect))
}

func addEvent(r *router, topic string, effect cqrsEffect) error {
	processor, err := cqrs.NewEventProcessorWithConfig(r.Router, cqrs.EventProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return topic, nil },
		SubscriberConstructor: func(cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return r.broker, nil
		},
		OnHandle:  inboxcqrs.OnEvent(nil),
		Marshaler: cqrs.JSONMarshaler{},
	})
	if err != nil {
		return err
	}
	return processor.AddHandlers(cqrs.NewEventHandler(topic, effect))
}

func addGroup(r *router, topic string, effect cqrsEffect) error {
	processor, err := cqrs.NewEventGroupProcessorWithConfig(r.Router, cqrs.EventGroupProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) { return topic, nil },
		SubscriberConstructor: func(cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return r.broker, nil
		},
		OnHandle:  inboxcqrs.OnEventGroup(nil),
		Marshaler: cqrs.JSONMarshaler{},
	})
	if err != nil {
		return err
	}
	return processor.AddHandlersGroup(topic, cqrs.NewGroupEventHandler(effect))
}

// newCancelledAfter makes a message whose context ends shortly after the signal.
func newCancelledAfter(started <-chan struct{}) (*message.Message, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-started:
			time.Sleep(50 * time.Millisecond) // until the statement is at the server: nothing tells
			cancel()
		case <-ctx.Done():
		}
	}()
	msg := newMessage("m1")
	msg.SetContext(ctx)
	return msg, cancel
}
