-- Identities of processed messages. Written once, in the transaction of the effect; removed only by retention or an operator.
CREATE TABLE IF NOT EXISTS "inbox_messages" (
    consumer     BLOB    NOT NULL,
    producer     BLOB    NOT NULL DEFAULT x'',
    message_id   BLOB    NOT NULL,
    fingerprint  BLOB    NOT NULL DEFAULT x'',
    token        INTEGER NOT NULL DEFAULT 0,
    processed_at INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER)),
    PRIMARY KEY (consumer, producer, message_id)
) WITHOUT ROWID;

-- Messages that wait, received, to be processed.
-- Times are microseconds since 1970 UTC. state: 0 pending, 1 crash suspect, 2 claimed, 3 waiting for its ordering key, 4 dead, 5 dead without payload.
-- In the first index state leads: a planner without statistics could otherwise take it to look up an identity, and read the whole backlog.
CREATE TABLE IF NOT EXISTS "inbox_pending" (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer     BLOB    NOT NULL,
    topic        BLOB    NOT NULL,
    producer     BLOB    NOT NULL,
    message_id   BLOB    NOT NULL,
    fingerprint  BLOB    NOT NULL,
    ordering_key BLOB    NOT NULL,
    uuid         BLOB    NOT NULL, -- x'' if it is the message_id, else '=' and the UUID
    metadata     BLOB    NOT NULL,
    payload      BLOB    NOT NULL,
    reception    INTEGER NOT NULL, -- random number of the insert
    received_at  INTEGER NOT NULL,
    state        INTEGER NOT NULL DEFAULT 0,
    due_at       INTEGER NOT NULL, -- available from, lease end, next look, or time of death
    token        INTEGER NOT NULL DEFAULT 0, -- of the claim
    attempts     INTEGER NOT NULL DEFAULT 0,
    reason       BLOB    NOT NULL DEFAULT x'',
    last_error   BLOB    NOT NULL DEFAULT x''
);
CREATE INDEX IF NOT EXISTS "inbox_pending_due" ON "inbox_pending" (state, consumer, topic, due_at, seq);
CREATE INDEX IF NOT EXISTS "inbox_pending_key" ON "inbox_pending" (consumer, topic, ordering_key, seq) WHERE ordering_key <> x'';
CREATE UNIQUE INDEX IF NOT EXISTS "inbox_pending_claimed" ON "inbox_pending" (consumer, topic, ordering_key) WHERE ordering_key <> x'' AND state = 2;
CREATE UNIQUE INDEX IF NOT EXISTS "inbox_pending_identity" ON "inbox_pending" (consumer, topic, producer, message_id);

-- Messages that wait, produced, to be relayed.
-- Times are microseconds since 1970 UTC. state: 0 pending, 1 crash suspect, 2 claimed, 3 waiting for its ordering key, 4 dead, 5 dead without payload.
-- In the first index state leads: a planner without statistics could otherwise take it to look up an identity, and read the whole backlog.
CREATE TABLE IF NOT EXISTS "inbox_outgoing" (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    consumer     BLOB    NOT NULL,
    topic        BLOB    NOT NULL,
    producer     BLOB    NOT NULL,
    message_id   BLOB    NOT NULL,
    fingerprint  BLOB    NOT NULL,
    ordering_key BLOB    NOT NULL,
    uuid         BLOB    NOT NULL, -- x'' if it is the message_id, else '=' and the UUID
    metadata     BLOB    NOT NULL,
    payload      BLOB    NOT NULL,
    reception    INTEGER NOT NULL, -- random number of the insert
    received_at  INTEGER NOT NULL,
    state        INTEGER NOT NULL DEFAULT 0,
    due_at       INTEGER NOT NULL, -- available from, lease end, next look, or time of death
    token        INTEGER NOT NULL DEFAULT 0, -- of the claim
    attempts     INTEGER NOT NULL DEFAULT 0,
    reason       BLOB    NOT NULL DEFAULT x'',
    last_error   BLOB    NOT NULL DEFAULT x''
);
CREATE INDEX IF NOT EXISTS "inbox_outgoing_due" ON "inbox_outgoing" (state, consumer, topic, due_at, seq);
CREATE INDEX IF NOT EXISTS "inbox_outgoing_key" ON "inbox_outgoing" (consumer, topic, ordering_key, seq) WHERE ordering_key <> x'';
CREATE UNIQUE INDEX IF NOT EXISTS "inbox_outgoing_claimed" ON "inbox_outgoing" (consumer, topic, ordering_key) WHERE ordering_key <> x'' AND state = 2;
