// Package deferred stores messages first, lets the broker's ack go, and processes them later. It is new: names, tables and defaults may still
// change.
//
// A Receiver writes messages into the table inbox_pending and returns when they are durable. A Subscriber claims them, each with a lease, and hands them to a
// Router, in which inbox.Middleware commits the effect, the identity and the end of the row together. Without that middleware it delivers at least once.
//
//	broker → PassthroughHandler → Receiver → inbox_pending → Subscriber → Inbox.Middleware → handler
//
// The middleware belongs to the processing handler, not to the router: around the handler that forwards to a Receiver it would record a message as
// processed before it is stored, and refuses with inbox.ErrForwardsToReceiver. Receiver, Subscriber and Inbox have the same Consumer and Schema.
//
// # States
//
//	received ──▶ pending ──claim──▶ claimed ──commit──▶ processed (its identity is in inbox_messages, its row is gone)
//	               ▲  ▲                │ │
//	               │  └──nack, backoff─┘ └──attempts exhausted, or the message is at fault──▶ dead
//	               │                   │                                                       │
//	               └──suspect◀──lease──┘ ◀──────────────────redrive────────────────────────────┘
//
// Received, pending and processed are not the same: that a message is stored says nothing about its effect.
//
//	received   The row is committed in inbox_pending, so the broker or sender may forget the message. It is an event, not a stored state: the
//	           row is pending from its first moment. A message that is in the table already, dead ones included, or whose identity is
//	           processed, is not stored again and counts as received; with other content it is refused.
//	pending    The row waits: for its Delay, for the backoff after a failed attempt, or for a free worker.
//	claimed    One worker has it until its lease ends, which the worker renews for as long as the handler runs. Each claim counts as an attempt, unless it
//	           ends in a conflict of the database or in a shutdown.
//	suspect    The lease ended without an outcome: the worker disappeared. Pending, but claimed alone, with nothing else of that subscription in
//	           flight, so that a message that kills its process does not burn the attempts of its neighbours.
//	waiting    Pending, but an earlier message with the same ordering key is not processed. A dead one holds up the others, too, unless DeadLetsGo.
//	dead       Nobody tries it any more: MaxAttempts is reached (attempts of workers that disappeared included), the message itself is at fault (no identity, or that
//	           of another message), or its row cannot be read. It stays, with reason and last error, until Store.Redrive makes it pending again, under
//	           the same identity and with all its attempts, or Store.Discard removes it.
//	stripped   Dead for so long that retention removed payload and metadata. It can only be discarded.
//	processed  Effect, identity and outgoing messages are committed. The row went in the same transaction, so its payload is gone; the identity in
//	           inbox_messages remains, and recognises repetitions.
//
// Store counts, lists, redrives and discards; StatePending and the other constants are what the column state holds.
//
// # What the early ack transfers
//
// From the ack on the broker has forgotten the message. Its disk, its backups and its retention do not protect it any more, but those of the database; its
// dead-letter queue does not see it, so watch Count.Dead; its backlog does not show it, so watch Count.Overdue and Count.Oldest. Package metrics exposes them to Prometheus.
//
// What a Receiver can never store (IsPoison is true for its error) is not transferred: the Router nacks it, and brokers without a limit of
// deliveries deliver it forever. The Router publishes after all middlewares, so a poison queue among them does not see the error. Wrap the Receiver in a publisher
// of your own that gives such messages to the poison queue (the example rabbitmq-deferred does), or call Publish in a handler.
//
// # Outbox
//
// Outbox keeps the messages that handlers produce in the table inbox_outgoing, in the same states, until a Subscriber with Queue Outgoing has handed them to the
// broker. Nothing in it is unique, and no identity is recorded. Give that Subscriber MaxAttempts -1: an outage of the broker is no message's fault.
//
// # Limits
//
// There is no order without an ordering key, and receptions that overlap in time have none with it. Do not use Watermill's InstantAck in front of a Subscriber.
// The inbox is no protection against replayed requests: verify signatures before a Receiver stores anything.
//
// SQLite has one writer: one message is in flight, and a Receiver waits while its handler's transaction is open. Keep busy_timeout no longer than
// Timeout, because the driver waits that long whatever its context says.
package deferred
