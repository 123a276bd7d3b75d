package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ackLoser is a subscriber whose connection to the broker breaks at the worst moment: the handler of the message with this id
// has committed and acked, and the broker never hears of it.
type ackLoser struct {
	message.Subscriber
	id string

	// settled is told what became of each delivery, before the broker is.
	settled func(ctx context.Context, d delivery)
}

// delivery is one delivery of a message and the answer to it.
type delivery struct {
	id     string
	answer string

	after   state // of the database
	outcome string
	err     error
}

func (l ackLoser) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	fromBroker, err := l.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	toRouter := make(chan *message.Message)
	go func() {
		defer close(toRouter)
		lost := false
		for msg := range fromBroker {
			answer, ok := handOn(ctx, msg, toRouter)
			if !ok {
				return // the Router closes
			}
			if answer == acked && msg.UUID == l.id && !lost {
				answer, lost = ackLost, true
			}
			l.settled(ctx, delivery{id: msg.UUID, answer: answer})
			if answer == acked {
				msg.Ack()
			} else {
				msg.Nack() // real brokers deliver again what was not acked when a connection breaks; GoChannel has to be told
			}
		}
	}()
	return toRouter, nil
}

const (
	acked   = "acked"
	nacked  = "nacked"
	ackLost = "ack lost"
)

// handOn gives the Router a copy, which has an ack of its own, and waits for the answer.
func handOn(ctx context.Context, msg *message.Message, toRouter chan<- *message.Message) (answer string, ok bool) {
	msg = msg.CopyWithContext()
	select {
	case toRouter <- msg:
	case <-ctx.Done():
		return "", false
	}
	select {
	case <-msg.Acked():
		return acked, true
	case <-msg.Nacked():
		return nacked, true
	case <-ctx.Done():
		return "", false
	}
}

// failOnce lets the handler of one message fail once, after it has written.
func failOnce(id string, handler txHandler) txHandler {
	var failed atomic.Bool
	return func(msg *message.Message, tx *sql.Tx) ([]*message.Message, error) {
		produced, err := handler(msg, tx)
		if err != nil || msg.UUID != id || !failed.CompareAndSwap(false, true) {
			return produced, err
		}
		var counter int
		if err := tx.QueryRowContext(msg.Context(), `SELECT counter FROM reports`).Scan(&counter); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("out of paper, with the counter at %d", counter)
	}
}
