-- The tables of leasehold, version 1, for MariaDB 10.6 or MySQL 8.0 or newer. The first client creates them, if its
-- user may. To create them in another way, run this, and grant the users of locks SELECT on leasehold_meta and
-- SELECT, INSERT, UPDATE, DELETE on the others. Times are microseconds since 1970 by the clock of this database.
-- Names are bytes: nothing is folded, padded or cut.

-- One row per name that is held or wanted, or was lately. Everything but one exclusive hold of a name is in
-- leasehold_claim.
CREATE TABLE IF NOT EXISTS leasehold_lock (
    name        varbinary(512) NOT NULL PRIMARY KEY,
    token       bigint       NOT NULL,              -- newest token that was minted
    holder      binary(16),                         -- claim that holds it; NULL: none, or see leasehold_claim
    tokens      int          NOT NULL DEFAULT 0,    -- number of tokens of its grant; the last one is token
    previous    smallint     NOT NULL DEFAULT 0,    -- how the previous hold ended
    owner       varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    since       bigint       NOT NULL DEFAULT 0,
    expires     bigint       NOT NULL DEFAULT 0,
    client      bigint       NOT NULL DEFAULT 0,    -- client that holds it
    claims      int          NOT NULL DEFAULT 0,    -- number of its rows in leasehold_claim
    ended       smallint     NOT NULL DEFAULT 0,    -- how the last hold ended: 0 clean, 1 abandoned, 2 lapsed, 3 broken
    ended_upto  bigint       NOT NULL DEFAULT 0,
    ended_until bigint       NOT NULL DEFAULT 0,
    stamp       bigint       NOT NULL DEFAULT 0     -- number of the last statement about many names that changed it
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Waiting claims, shared holds, permits, and holds that were granted to waiters.
CREATE TABLE IF NOT EXISTS leasehold_claim (
    name          varbinary(512) NOT NULL,
    id            binary(16)   NOT NULL,
    stand         smallint     NOT NULL,  -- 0 holds, 1 granted, 2 broken, 3 minimum hold, 4 waits, 5 missed its grant, 6 ended
    place         bigint       NOT NULL,
    mode          smallint     NOT NULL,  -- 0 exclusive, 1 shared, 2 permits: count of most
    count         bigint       NOT NULL,
    most          bigint       NOT NULL,
    token         bigint       NOT NULL,  -- first token of its grant
    tokens        int          NOT NULL,
    previous      smallint     NOT NULL,
    owner         varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    since         bigint       NOT NULL,
    expires       bigint       NOT NULL,
    claim_time    bigint       NOT NULL,
    place_since   bigint       NOT NULL,
    place_expires bigint       NOT NULL,
    client        bigint       NOT NULL,  -- client that polls for its grant
    stamp         bigint       NOT NULL DEFAULT 0,
    PRIMARY KEY (name, id),
    KEY called (client, stand)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
