-- Messages that wait, {{purpose}}.
-- Times are microseconds since 1970 UTC. state: 0 pending, 1 crash suspect, 2 claimed, 3 waiting for its ordering key, 4 dead, 5 dead without payload.
-- In the first index state leads: a planner without statistics could otherwise take it to look up an identity, and read the whole backlog.
CREATE TABLE IF NOT EXISTS {{table}} (
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
CREATE INDEX IF NOT EXISTS {{index_due}} ON {{table}} (state, consumer, topic, due_at, seq);
CREATE INDEX IF NOT EXISTS {{index_key}} ON {{table}} (consumer, topic, ordering_key, seq) WHERE ordering_key <> '';
CREATE UNIQUE INDEX IF NOT EXISTS {{index_claimed}} ON {{table}} (consumer, topic, ordering_key) WHERE ordering_key <> '' AND state = 2;
{{unique}}
