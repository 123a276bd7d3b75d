// Package deferred stores messages first, lets the broker's ack go, and processes them later. It is unfinished: names, tables and defaults may still
// change, and it does not yet have all of its tests.
//
// A Receiver writes messages into the table inbox_pending and returns when they are durable. A Subscriber claims them, each with a lease, and hands them to a
// Router, in which inbox.Middleware commits the effect, the identity and the end of the row together. Without that middleware it delivers at least once.
//
//	broker → PassthroughHandler → Receiver → inbox_pending → Subscriber → Inbox.Middleware → handler
//
// # States
//
//	received ──▶ pending ──claim──▶ claimed ──commit──▶ processed (its identity is in inbox_messages, its row is gone)
//	               ▲  ▲                │ │
//	               │  └──nack, backoff─┘ └──attempts exhausted, or the message is at fault──▶ dead
//	               │                   │                                                       │
//	               └──suspect◀──lease──┘ ◀──────────────────redrive────────────────────────────┘
//
// A message whose worker disappeared is a suspect: it is claimed alone, so that a message that kills its process does not burn the attempts of
// its neighbours. A message waits while an earlier one with its ordering key is not processed. A dead one stays until an operator redrives or discards it.
//
// # Limits
//
// There is no order without an ordering key, and receptions that overlap in time have none with it. Do not use Watermill's InstantAck in front of a Subscriber.
// The inbox is no protection against replayed requests: verify signatures before a Receiver stores anything.
package deferred
