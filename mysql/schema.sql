-- Identities of processed messages. Written once, in the transaction of the effect; removed only by retention or an operator.
CREATE TABLE IF NOT EXISTS {{table}} (
    `consumer`     VARBINARY(255)  NOT NULL,
    `producer`     VARBINARY(512)  NOT NULL DEFAULT '',
    `message_id`   VARBINARY(512)  NOT NULL,
    `fingerprint`  VARBINARY(128)  NOT NULL DEFAULT '',
    `token`        BIGINT UNSIGNED NOT NULL DEFAULT 0,
    `processed_at` DATETIME        NOT NULL DEFAULT (UTC_TIMESTAMP()),
    PRIMARY KEY (`consumer`, `producer`, `message_id`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
