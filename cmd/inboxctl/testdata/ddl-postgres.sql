-- Identities of processed messages. Written once, in the transaction of the effect; removed only by retention or an operator.
CREATE TABLE IF NOT EXISTS "inbox_messages" (
    consumer     BYTEA       NOT NULL,
    producer     BYTEA       NOT NULL DEFAULT '',
    message_id   BYTEA       NOT NULL,
    fingerprint  BYTEA       NOT NULL DEFAULT '',
    processed_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, producer, message_id)
);

-- Messages that wait, received, to be processed.
-- Times are microseconds since 1970 UTC. state: 0 pending, 1 crash suspect, 2 claimed, 3 waiting for its ordering key, 4 dead, 5 dead without payload.
-- In the first index state leads: a planner without statistics could otherwise take it to look up an identity, and read the whole backlog.
CREATE TABLE IF NOT EXISTS "inbox_pending" (
    seq          BIGINT   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer     BYTEA    NOT NULL,
    topic        BYTEA    NOT NULL,
    producer     BYTEA    NOT NULL,
    message_id   BYTEA    NOT NULL,
    fingerprint  BYTEA    NOT NULL,
    ordering_key BYTEA    NOT NULL,
    uuid         BYTEA    NOT NULL, -- '' if it is the message_id, else '=' and the UUID
    metadata     BYTEA    NOT NULL,
    payload      BYTEA    NOT NULL,
    reception    BIGINT   NOT NULL, -- random number of the insert
    received_at  BIGINT   NOT NULL,
    state        SMALLINT NOT NULL DEFAULT 0,
    due_at       BIGINT   NOT NULL, -- available from, lease end, next look, or time of death
    token        BIGINT   NOT NULL DEFAULT 0, -- of the claim
    attempts     INTEGER  NOT NULL DEFAULT 0,
    reason       BYTEA    NOT NULL DEFAULT '',
    last_error   BYTEA    NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS "inbox_pending_due" ON "inbox_pending" (state, consumer, topic, due_at, seq);
CREATE INDEX IF NOT EXISTS "inbox_pending_key" ON "inbox_pending" (consumer, topic, ordering_key, seq) WHERE ordering_key <> '';
CREATE UNIQUE INDEX IF NOT EXISTS "inbox_pending_claimed" ON "inbox_pending" (consumer, topic, ordering_key) WHERE ordering_key <> '' AND state = 2;
CREATE UNIQUE INDEX IF NOT EXISTS "inbox_pending_identity" ON "inbox_pending" (consumer, topic, producer, message_id);

-- Messages that wait, produced, to be relayed.
-- Times are microseconds since 1970 UTC. state: 0 pending, 1 crash suspect, 2 claimed, 3 waiting for its ordering key, 4 dead, 5 dead without payload.
-- In the first index state leads: a planner without statistics could otherwise take it to look up an identity, and read the whole backlog.
CREATE TABLE IF NOT EXISTS "inbox_outgoing" (
    seq          BIGINT   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer     BYTEA    NOT NULL,
    topic        BYTEA    NOT NULL,
    producer     BYTEA    NOT NULL,
    message_id   BYTEA    NOT NULL,
    fingerprint  BYTEA    NOT NULL,
    ordering_key BYTEA    NOT NULL,
    uuid         BYTEA    NOT NULL, -- '' if it is the message_id, else '=' and the UUID
    metadata     BYTEA    NOT NULL,
    payload      BYTEA    NOT NULL,
    reception    BIGINT   NOT NULL, -- random number of the insert
    received_at  BIGINT   NOT NULL,
    state        SMALLINT NOT NULL DEFAULT 0,
    due_at       BIGINT   NOT NULL, -- available from, lease end, next look, or time of death
    token        BIGINT   NOT NULL DEFAULT 0, -- of the claim
    attempts     INTEGER  NOT NULL DEFAULT 0,
    reason       BYTEA    NOT NULL DEFAULT '',
    last_error   BYTEA    NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS "inbox_outgoing_due" ON "inbox_outgoing" (state, consumer, topic, due_at, seq);
CREATE INDEX IF NOT EXISTS "inbox_outgoing_key" ON "inbox_outgoing" (consumer, topic, ordering_key, seq) WHERE ordering_key <> '';
CREATE UNIQUE INDEX IF NOT EXISTS "inbox_outgoing_claimed" ON "inbox_outgoing" (consumer, topic, ordering_key) WHERE ordering_key <> '' AND state = 2;
