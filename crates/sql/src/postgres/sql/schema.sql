-- The tables of leasehold, version 1, for PostgreSQL 13 or newer. The first client creates them, if its user may. To
-- create them in another way, run this, and grant the users of locks SELECT on leasehold_meta and SELECT, INSERT,
-- UPDATE, DELETE on the others. Times are microseconds since 1970 by the clock of this database.

CREATE TABLE IF NOT EXISTS leasehold_meta (
    one     smallint PRIMARY KEY CHECK (one = 1),
    version integer  NOT NULL,
    lineage text     NOT NULL  -- distinguishes these tables from others of the same name
);
INSERT INTO leasehold_meta VALUES (1, 1, replace(gen_random_uuid()::text, '-', '')) ON CONFLICT DO NOTHING;

-- One row per name that is held or wanted, or was lately; and one without a name, with the largest token of the
-- forgotten names. Everything but one exclusive hold of a name is in leasehold_claim.
CREATE TABLE IF NOT EXISTS leasehold_lock (
    name        text COLLATE "C" PRIMARY KEY,
    token       bigint   NOT NULL,              -- newest token that was minted
    holder      bytea,                          -- claim that holds it; NULL: none, or see leasehold_claim
    tokens      integer  NOT NULL DEFAULT 0,    -- number of tokens of its grant; the last one is token
    previous    smallint NOT NULL DEFAULT 0,    -- how the previous hold ended
    owner       text     NOT NULL DEFAULT '',
    since       bigint   NOT NULL DEFAULT 0,
    expires     bigint   NOT NULL DEFAULT 0,
    client      bigint   NOT NULL DEFAULT 0,    -- client to notify: channel leasehold_<client, 16 hexadecimal digits>
    claims      integer  NOT NULL DEFAULT 0,    -- number of its rows in leasehold_claim
    ended       smallint NOT NULL DEFAULT 0,    -- how the last hold ended: 0 clean, 1 abandoned, 2 lapsed, 3 broken
    ended_upto  bigint   NOT NULL DEFAULT 0,
    ended_until bigint   NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Waiting claims, shared holds, permits, and holds that were granted to waiters.
CREATE TABLE IF NOT EXISTS leasehold_claim (
    name          text COLLATE "C" NOT NULL,
    id            bytea    NOT NULL,
    stand         smallint NOT NULL,  -- 0 holds, 1 granted, 2 broken, 3 minimum hold, 4 waits, 5 missed its grant, 6 ended
    place         bigint   NOT NULL,
    mode          smallint NOT NULL,  -- 0 exclusive, 1 shared, 2 permits: count of most
    count         bigint   NOT NULL,
    most          bigint   NOT NULL,
    token         bigint   NOT NULL,  -- first token of its grant
    tokens        integer  NOT NULL,
    previous      smallint NOT NULL,
    owner         text     NOT NULL,
    since         bigint   NOT NULL,
    expires       bigint   NOT NULL,
    claim_time    bigint   NOT NULL,
    place_since   bigint   NOT NULL,
    place_expires bigint   NOT NULL,
    client        bigint   NOT NULL,
    PRIMARY KEY (name, id)
) WITH (fillfactor = 70);
