// Package retention removes identities of processed messages when they are older than any message that can still come back, and lets operators forget some of them on
// purpose. It is new: names and defaults may still change.
//
// # The horizon
//
// While an identity is kept, a repetition of its message has no effect. Removing it enables the effect again, so the horizon of a consumer must be longer than the
// oldest repetition: what the broker keeps, what lies in a dead-letter queue until somebody sends it again, what an outbox relay or a restored backup publishes once
// more. Declare these in Needs: Needs.Horizon is the sum of what can follow each other, and NewCleaner warns of horizons below it. The redelivery age in the
// Inbox's reports and metrics shows what really comes back: a horizon near its maximum is too short. Forever keeps identities for ever.
//
// Ages are counted by the database's clock from when a message was processed. A message that is pending, claimed or dead keeps its identity, whatever its age.
//
// # What a sweep costs
//
// There is no index on time, because every message would pay for it. A sweep reads the primary key once from end to end, in windows, and removes by key, in small transactions with a
// pause between them. So it costs the reading of the table now and then, and consumers wait for it only if they get the very message that is being removed. Sweep as rarely as disk space
// allows: with a horizon of weeks, every few hours are enough.
//
// Grant the Cleaner's database user SELECT and DELETE on the table of identities, and SELECT and UPDATE on the tables of package deferred, if there are any.
//
// # Replay
//
// The same messages again: publish them again, or reset the consumer group. What a consumer has processed it recognises and acks; only what is new to it has an effect.
//
// A projection from the beginning: change Config.Consumer, such as from "stock-v1" to "stock-v2". All messages are new to the new consumer, the old one can run beside it, and when
// it has ended, a horizon for it alone in Config.Horizons removes what it remembered. With a table of its own (Schema.MessagesTable) the new projection shares nothing with the old one, and dropping
// the table is the end of it.
//
// One message, or those of an hour, once more: Identities.Forget and Identities.ForgetRange. This is how effects are doubled, if the first effect was not undone: preview with Find or
// CountRange. Nothing forgets all of a consumer at once, or of all consumers.
package retention
