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
// # What happens when something fails
//
//	failure                                what is stored      the broker sees         you see                                    shown by
//
//	crash before COMMIT                    nothing             no ack, redelivers      the handler runs again                     TestSweep
//	handler returns an error, panics       nothing             nack                    your error; poison, unless transient       I1_FailureLeavesNothing, T05
//	outgoing message cannot be stored      nothing             nack                    the error, stage "outbox"                  I9_FailedInsert
//	COMMIT done, ack lost                  all of it           redelivers, then ack    Duplicate                                  TestRabbitMQ, KilledBeforeAck
//	COMMIT without an answer               resolved            ack, or another run     Processed; past ResolveTimeout             TestT01
//	                                                           or nack                 ErrCommitUncertain
//	two deliveries at once                 the first one's     ack for both            Duplicate; past WaitTimeout ErrInFlight    T21, I3_InFlightElsewhere
//	deadlock, serialization failure, busy  the last attempt's  ack, or nack            ConflictRetries attempts at most           T22, T23, T24
//	engine ends the transaction, and the   nothing (1)         nack                    ErrTransactionLost                         T03, T04
//	handler swallows it
//	handler takes longer than TxTimeout    nothing             nack                    context.DeadlineExceeded                   T02
//	ack deadline of the broker passes      the first one's     redelivers, ack for     Duplicate, or ErrInFlight and nack         AckDeadline, TestT14
//	                                                           both
//	service shuts down under load          what is committed   ack for that, the       nothing is poison                          TestT45, T09
//	                                                           rest redelivers
//	same id, other content                 the first one's     nack                    *MismatchError, poison                     T19
//	no id, or a longer one than 512 bytes  nothing             nack                    ErrNoIdentity, ErrIdentityTooLong, poison  T17, T18
//	database down or restarted             nothing of what     nack                    the error, never poison                    TestT26, TestSoak
//	                                       was under way
//
// (1) On MySQL and SQLite with autocommit on, statements that the handler issues after the swallowed error may stay.
//
// The tests are in the repository's folders inboxtest (I and T with a number), tests/faults, tests/soak, tests/brokers and tests; README.md links each.
//
// # When you need none
//
// Not every consumer needs an inbox. A handler whose effect converges by itself, such as an upsert of a full state, is idempotent without one.
package inbox
