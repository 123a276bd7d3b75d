// Package inbox makes the redelivery of messages harmless for consumers that change a SQL database.
//
// Brokers deliver at least once: a consumer that commits its change and dies before its ack gets the message again. An Inbox is a
// middleware for Watermill's Router. It opens a transaction for each message, inserts the message's identity under a unique key, passes
// the transaction to the handler through the context, writes the messages that the handler produces to an outbox in the same
// transaction, and commits. Only then does the Router ack. A redelivery finds the identity and is acked without running the handler.
//
//	BEGIN
//	INSERT (consumer, producer, message id)    the unique key arbitrates
//	the handler's statements
//	INSERT INTO outbox
//	COMMIT
//	ack
//
// # What it guarantees
//
// While an identity is kept, the effect that was committed with it is never committed a second time. Identity, effect and outgoing messages
// are committed together or not at all. Only a committed row counts as evidence of a duplicate: errors, timeouts, deadlocks and
// transactions still open elsewhere lead to a wait, another attempt or a nack. A COMMIT without an answer is resolved, not guessed.
//
// # What it does not
//
// It promises no order, no delivery and no exactly-once in general. E-mails, HTTP calls and writes to another store do not take part;
// pass IdempotencyKey to systems that accept one. A handler that commits the transaction itself, sends COMMIT or ROLLBACK as a statement, or runs DDL on MySQL, ends the protection, and
// statements that a handler issues after it swallowed an error that ended the transaction may stay, on MySQL and SQLite with autocommit on.
// Identities must be kept for as long as the message can come back: broker retention, dead letters, backups, replays.
//
// Not every consumer needs an inbox. A handler whose effect converges by itself, such as an upsert of a full state, is idempotent without one.
package inbox
