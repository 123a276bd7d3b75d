// Package metrics shows Prometheus what an inbox does.
//
// An Observer counts deliveries, the events of deferred Subscribers and what retention removes. It touches no database and allocates nothing per message. A
// Backlog asks the database what waits in a queue, at a bounded cost and seldom.
//
//	observer, err := metrics.NewObserver(prometheus.DefaultRegisterer, metrics.ObserverConfig{Horizon: 30 * 24 * time.Hour})
//	in, err := inbox.New(db, inbox.Config{Schema: schema, Observer: observer}, logger)
//	pending, err := deferred.NewSubscriber(db, deferred.SubscriberConfig{Schema: schema, Consumer: "billing", Observer: observer}, logger)
//
//	cleaner, err := retention.NewCleaner(db, retention.Config{Schema: schema, Horizon: 30 * 24 * time.Hour, Observer: observer}, logger)
//
//	store, err := deferred.NewStore(db, schema, deferred.Pending, logger)
//	backlog, err := metrics.NewBacklog(store, metrics.BacklogConfig{})
//	prometheus.MustRegister(backlog)
//
// # Metrics
//
//	inbox_deliveries_total{consumer, outcome}              ended deliveries: processed, duplicate, failed
//	inbox_failures_total{consumer, stage}                  failed deliveries by the stage that inbox.Error names
//	inbox_mismatches_total{consumer}                       identities that came with other content than was processed
//	inbox_conflicts_total{consumer}                        transactions that the database gave up in favour of others
//	inbox_uncertain_commits_total{consumer, outcome}       COMMITs without an answer: committed, rolled back, unresolved
//	inbox_early_acks_total{consumer}                       messages that were acked before their transaction was committed
//	inbox_in_flight_elsewhere_total{consumer}              deliveries that gave up waiting for another holder of their identity
//	inbox_in_flight{consumer}                              deliveries that have begun and not ended
//	inbox_begin_wait_seconds{consumer}                     histogram: waits for a connection, and for the one writer
//	inbox_identity_wait_seconds{consumer}                  histogram: inserts of the identity, which wait for another holder of it
//	inbox_transaction_seconds{consumer}                    histogram: how long transactions were open in a delivery
//	inbox_redelivery_distance_seconds{consumer}            histogram: age of the identity at the time of a duplicate
//	inbox_redelivery_distance_max_seconds{consumer}        the largest of these since the start of the process
//	inbox_retention_horizon_seconds                        ObserverConfig.Horizon, to compare with
//	inbox_retention_removed_total{consumer}                identities that retention has removed, and with no consumer payloads of dead messages
//	inbox_retention_examined_total{consumer}               rows that it has looked at
//	inbox_retention_batch_seconds{consumer}                histogram: how long its batches took
//	inbox_deferred_messages_total{queue, consumer, outcome}  the events of package deferred
//
//	inbox_backlog_messages{queue, consumer, state}         messages in a queue, counted up to BacklogConfig.CountLimit
//	inbox_backlog_oldest_seconds{queue, consumer}          age of the oldest message that is not dead
//	inbox_backlog_overdue_seconds{queue, consumer}         for how long nobody has attended to a message whose time has come
//	inbox_backlog_truncated{queue}                         1 if some number of messages is a lower bound
//	inbox_backlog_up{queue}                                1 if the last query succeeded
//	inbox_backlog_updated_timestamp_seconds{queue}         when the values were read
//	inbox_backlog_query_seconds{queue}                     how long the last query took
//
// The number of processes does not change the backlog: each process that registers a Backlog exposes the same numbers, so take max, not sum, over instances.
//
// # Labels
//
// Consumers are the names that the program configures, or those of the Router's handlers, so their number is bounded by the program; topics, ids and
// errors are in no label. A delivery that fails before its consumer is known has an empty one. Bytes in a name that are not UTF-8, which Prometheus refuses, are
// written as \xff. To rename or label all metrics, register with prometheus.WrapRegistererWith or WrapRegistererWithPrefix.
//
// How long deliveries take from the broker's point of view is not here: Watermill's own metrics measure handlers.
//
// A dashboard for Grafana and rules for alerts are in the folder deploy of the repository.
package metrics
