// Package inboxhttp gives the requests that watermill-http receives, webhooks above all, the id that their sender gave them, and answers the
// sender so that it repeats what was not committed.
//
//	subscriber, err := http.NewSubscriber(address, http.SubscriberConfig{
//		UnmarshalMessageFunc: inboxhttp.FromHeader("Webhook-Id"),
//	}, logger)
//	router.AddMiddleware(inboxhttp.Answer, middleware.Recoverer, webhookInbox.Middleware)
//
// # Where the id is
//
// The default of watermill-http reads the header Message-Uuid, which only watermill-http's publisher writes. Of others:
//
//	Standard Webhooks (Svix and many more)  FromHeader("Webhook-Id"), or "Svix-Id"
//	GitHub                                  FromHeader("X-GitHub-Delivery"), the same when somebody presses "Redeliver"
//	Shopify                                 FromHeader("X-Shopify-Webhook-Id")
//	Idempotency-Key (IETF draft)            FromHeader("Idempotency-Key")
//	Stripe and others with the id in the body   Config{}, and an inbox.IdentityFunc that parses the payload (see the example)
//
// A request without the header has an empty id, and the inbox refuses it with inbox.ErrNoIdentity: none is made up. Two such headers in one
// request are an error. Senders do not share their ids: give each a topic and a consumer of its own, or a namespace by inbox.WithProducer.
//
// Verify the signature before, in an HTTP middleware of SubscriberConfig.Router. Whoever may send a request with a made-up id can take that id:
// the true event with it is then a mismatch. The inbox verifies nothing, and this package neither.
//
// # What the sender is answered
//
// watermill-http answers only after the ack or nack, and the Router acks after COMMIT. So 2xx says that the effect is committed, now or by an
// earlier delivery of the same id. Everything else says nothing: a sender that got another answer or none repeats, and the inbox
// recognises what was committed.
//
//	acked: processed, or a duplicate    200, or what the handler set (a duplicate runs no handler: 200)
//	nacked                              500, or what the handler set: use Answer, see there
//	request cannot be unmarshaled       400: a body over the limit, a broken body, two ids
//
// A client that disconnects ends the message's context, and with it that of a handler that is Cancellable (see inbox.Config.HandlerContext): it is
// rolled back if the handler returns the error, committed if it finishes nevertheless. The repetition finds out.
//
// The server that watermill-http starts has no timeouts and closes by cutting its connections. Put a reverse proxy with timeouts before it.
package inboxhttp
