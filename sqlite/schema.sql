-- Identities of processed messages. Written once, in the transaction of the effect; removed only by retention or an operator.
CREATE TABLE IF NOT EXISTS {{table}} (
    consumer     BLOB    NOT NULL,
    producer     BLOB    NOT NULL DEFAULT x'',
    message_id   BLOB    NOT NULL,
    fingerprint  BLOB    NOT NULL DEFAULT x'',
    token        INTEGER NOT NULL DEFAULT 0,
    processed_at INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER)),
    PRIMARY KEY (consumer, producer, message_id)
) WITHOUT ROWID;
