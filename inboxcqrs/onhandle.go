// Package inboxcqrs connects an inbox.Inbox with Watermill's cqrs processors.
//
// Add Inbox.Middleware to the Router as usual, and one of these functions as OnHandle of the processor:
//
//	cqrs.CommandProcessorConfig{OnHandle: inboxcqrs.OnCommand(nil), …}
//
// With AckCommandHandlingErrors a processor hides the errors of its handlers from all middlewares, and an Inbox would commit the half-done work of
// a failed command. These functions see the error first: the transaction is rolled back and the Inbox fails the delivery with
// it, so the command is nacked in spite of AckCommandHandlingErrors; use a poison queue to give it up. They also refuse a second
// run of one handler in one transaction with inbox.ErrRetryInside.
//
// Messages of types that a processor ignores (AckOnUnknownEvent) are stored like any other unless inbox.Config.Skip leaves them out.
//
// To publish from a handler in its transaction, build one cqrs.EventBus or cqrs.CommandBus on Inbox.Publisher and call it with the
// handler's context.
package inboxcqrs

import (
	"reflect"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"

	"github.com/watermill-inbox/inbox"
)

// OnCommand wraps an OnHandle function of a command processor. With nil it calls the handler with the message's context.
func OnCommand(next cqrs.CommandProcessorOnHandleFn) cqrs.CommandProcessorOnHandleFn {
	if next == nil {
		next = func(params cqrs.CommandProcessorOnHandleParams) error {
			return params.Handler.Handle(params.Message.Context(), params.Command)
		}
	}
	return func(params cqrs.CommandProcessorOnHandleParams) error {
		return inbox.HandleOnce(params.Message.Context(), handlerKey{name: params.Handler.HandlerName()}, func() error { return next(params) })
	}
}

// OnEvent wraps an OnHandle function of an event processor. With nil it calls the handler with the message's context.
func OnEvent(next cqrs.EventProcessorOnHandleFn) cqrs.EventProcessorOnHandleFn {
	if next == nil {
		next = func(params cqrs.EventProcessorOnHandleParams) error {
			return params.Handler.Handle(params.Message.Context(), params.Event)
		}
	}
	return func(params cqrs.EventProcessorOnHandleParams) error {
		return inbox.HandleOnce(params.Message.Context(), handlerKey{name: params.Handler.HandlerName()}, func() error { return next(params) })
	}
}

// OnEventGroup wraps an OnHandle function of an event group processor. With nil it calls the handler with the message's context. All handlers of
// a group share the transaction of their message; each may run once in it. Handlers of a comparable type are told apart, as those
// that cqrs.NewGroupEventHandler makes are.
func OnEventGroup(next cqrs.EventGroupProcessorOnHandleFn) cqrs.EventGroupProcessorOnHandleFn {
	if next == nil {
		next = func(params cqrs.EventGroupProcessorOnHandleParams) error {
			return params.Handler.Handle(params.Message.Context(), params.Event)
		}
	}
	return func(params cqrs.EventGroupProcessorOnHandleParams) error {
		run := func() error { return next(params) }
		if !reflect.TypeOf(params.Handler).Comparable() {
			return inbox.HandleOnce(params.Message.Context(), new(byte), run) // cannot be recognised in a second run
		}
		return inbox.HandleOnce(params.Message.Context(), handlerKey{params.GroupName, params.Handler}, run)
	}
}

// handlerKey tells the handlers of one transaction apart.
type handlerKey struct {
	name    string
	handler any
}
