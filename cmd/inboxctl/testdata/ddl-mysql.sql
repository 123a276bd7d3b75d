-- Identities of processed messages. Written once, in the transaction of the effect; removed only by retention or an operator.
CREATE TABLE IF NOT EXISTS `inbox_messages` (
    `consumer`     VARBINARY(255)  NOT NULL,
    `producer`     VARBINARY(512)  NOT NULL DEFAULT '',
    `message_id`   VARBINARY(512)  NOT NULL,
    `fingerprint`  VARBINARY(128)  NOT NULL DEFAULT '',
    `token`        BIGINT UNSIGNED NOT NULL DEFAULT 0,
    `processed_at` DATETIME        NOT NULL DEFAULT (UTC_TIMESTAMP()),
    PRIMARY KEY (`consumer`, `producer`, `message_id`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Messages that wait, received, to be processed.
-- Times are microseconds since 1970 UTC. state: 0 pending, 1 crash suspect, 2 claimed, 3 waiting for its ordering key, 4 dead, 5 dead without payload.
-- In the first index state leads: a planner without statistics could otherwise take it to look up an identity, and read the whole backlog.
CREATE TABLE IF NOT EXISTS `inbox_pending` (
    `seq`          BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    `consumer`     VARBINARY(255) NOT NULL,
    `topic`        VARBINARY(255) NOT NULL,
    `producer`     VARBINARY(512) NOT NULL,
    `message_id`   VARBINARY(512) NOT NULL,
    `fingerprint`  VARBINARY(128) NOT NULL,
    `ordering_key` VARBINARY(512) NOT NULL,
    `uuid`         VARBINARY(513) NOT NULL COMMENT 'empty if it is the message_id, else = and the UUID',
    `metadata`     LONGBLOB       NOT NULL,
    `payload`      LONGBLOB       NOT NULL,
    `reception`    BIGINT         NOT NULL COMMENT 'random number of the insert',
    `received_at`  BIGINT         NOT NULL,
    `state`        SMALLINT       NOT NULL DEFAULT 0,
    `due_at`       BIGINT         NOT NULL COMMENT 'available from, lease end, next look, or time of death',
    `token`        BIGINT         NOT NULL DEFAULT 0 COMMENT 'of the claim',
    `attempts`     INT            NOT NULL DEFAULT 0,
    `reason`       VARBINARY(255) NOT NULL DEFAULT '',
    `last_error`   VARBINARY(2048) NOT NULL DEFAULT '',
    `claimed_key`  VARBINARY(512) GENERATED ALWAYS AS (CASE WHEN `state` = 2 AND `ordering_key` <> '' THEN `ordering_key` END) STORED,
    INDEX `due` (`state`, `consumer`, `topic`, `due_at`, `seq`),
    INDEX `ordering` (`consumer`, `topic`, `ordering_key`, `seq`),
    UNIQUE INDEX `claimed` (`consumer`, `topic`, `claimed_key`),
    UNIQUE INDEX `identity` (`consumer`, `topic`, `producer`, `message_id`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Messages that wait, produced, to be relayed.
-- Times are microseconds since 1970 UTC. state: 0 pending, 1 crash suspect, 2 claimed, 3 waiting for its ordering key, 4 dead, 5 dead without payload.
-- In the first index state leads: a planner without statistics could otherwise take it to look up an identity, and read the whole backlog.
CREATE TABLE IF NOT EXISTS `inbox_outgoing` (
    `seq`          BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    `consumer`     VARBINARY(255) NOT NULL,
    `topic`        VARBINARY(255) NOT NULL,
    `producer`     VARBINARY(512) NOT NULL,
    `message_id`   VARBINARY(512) NOT NULL,
    `fingerprint`  VARBINARY(128) NOT NULL,
    `ordering_key` VARBINARY(512) NOT NULL,
    `uuid`         VARBINARY(513) NOT NULL COMMENT 'empty if it is the message_id, else = and the UUID',
    `metadata`     LONGBLOB       NOT NULL,
    `payload`      LONGBLOB       NOT NULL,
    `reception`    BIGINT         NOT NULL COMMENT 'random number of the insert',
    `received_at`  BIGINT         NOT NULL,
    `state`        SMALLINT       NOT NULL DEFAULT 0,
    `due_at`       BIGINT         NOT NULL COMMENT 'available from, lease end, next look, or time of death',
    `token`        BIGINT         NOT NULL DEFAULT 0 COMMENT 'of the claim',
    `attempts`     INT            NOT NULL DEFAULT 0,
    `reason`       VARBINARY(255) NOT NULL DEFAULT '',
    `last_error`   VARBINARY(2048) NOT NULL DEFAULT '',
    `claimed_key`  VARBINARY(512) GENERATED ALWAYS AS (CASE WHEN `state` = 2 AND `ordering_key` <> '' THEN `ordering_key` END) STORED,
    INDEX `due` (`state`, `consumer`, `topic`, `due_at`, `seq`),
    INDEX `ordering` (`consumer`, `topic`, `ordering_key`, `seq`),
    UNIQUE INDEX `claimed` (`consumer`, `topic`, `claimed_key`)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
