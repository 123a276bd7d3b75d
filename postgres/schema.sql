-- Identities of processed messages. Written once, in the transaction of the effect; removed only by retention or an operator.
CREATE TABLE IF NOT EXISTS {{table}} (
    consumer     BYTEA       NOT NULL,
    producer     BYTEA       NOT NULL DEFAULT '',
    message_id   BYTEA       NOT NULL,
    fingerprint  BYTEA       NOT NULL DEFAULT '',
    processed_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (consumer, producer, message_id)
);
