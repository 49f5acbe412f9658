-- The tables of leasehold, version 1, for SQLite. The first client creates them, if it may write the file. Times are
-- microseconds since the boot of the machine: all users of the file run on one machine.

CREATE TABLE IF NOT EXISTS leasehold_meta (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    lineage TEXT    NOT NULL,  -- distinguishes these tables from others of the same name
    boot    TEXT    NOT NULL,  -- id of the boot from which the times are counted
    floor   INTEGER NOT NULL   -- no token up to this one is minted for a name without a row
);
-- No boot yet: the first client writes its own.
INSERT INTO leasehold_meta VALUES (1, 1, lower(hex(randomblob(16))), '', 0) ON CONFLICT DO NOTHING;

-- One row per name that is held or wanted, or was lately. Everything but one exclusive hold of a name is in
-- leasehold_claim.
CREATE TABLE IF NOT EXISTS leasehold_lock (
    name        TEXT PRIMARY KEY,
    token       INTEGER NOT NULL,            -- newest token that was minted
    holder      BLOB,                        -- claim that holds it; NULL: none, or see leasehold_claim
    tokens      INTEGER NOT NULL DEFAULT 0,  -- number of tokens of its grant; the last one is token
    previous    INTEGER NOT NULL DEFAULT 0,  -- how the previous hold ended
    owner       TEXT    NOT NULL DEFAULT '',
    since       INTEGER NOT NULL DEFAULT 0,
    expires     INTEGER NOT NULL DEFAULT 0,
    client      INTEGER NOT NULL DEFAULT 0,
    claims      INTEGER NOT NULL DEFAULT 0,  -- number of its rows in leasehold_claim
    ended       INTEGER NOT NULL DEFAULT 0,  -- how the last hold ended: 0 clean, 1 abandoned, 2 lapsed, 3 broken
    ended_upto  INTEGER NOT NULL DEFAULT 0,
    ended_until INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Waiting claims, shared holds, permits, and holds that were granted to waiters.
CREATE TABLE IF NOT EXISTS leasehold_claim (
    name          TEXT    NOT NULL,
    id            BLOB    NOT NULL,
    stand         INTEGER NOT NULL,  -- 0 holds, 1 granted, 2 broken, 3 minimum hold, 4 waits, 5 missed its grant, 6 ended
    place         INTEGER NOT NULL,
    mode          INTEGER NOT NULL,  -- 0 exclusive, 1 shared, 2 permits: count of most
    count         INTEGER NOT NULL,
    most          INTEGER NOT NULL,
    token         INTEGER NOT NULL,  -- first token of its grant
    tokens        INTEGER NOT NULL,
    previous      INTEGER NOT NULL,
    owner         TEXT    NOT NULL,
    since         INTEGER NOT NULL,
    expires       INTEGER NOT NULL,
    claim_time    INTEGER NOT NULL,
    place_since   INTEGER NOT NULL,
    place_expires INTEGER NOT NULL,
    client        INTEGER NOT NULL,
    PRIMARY KEY (name, id)
) WITHOUT ROWID;

-- Memos: what a holder left beside a name.
CREATE TABLE IF NOT EXISTS leasehold_memo (
    name     TEXT PRIMARY KEY,
    kind     TEXT    NOT NULL,
    id       BLOB    NOT NULL,  -- claim that wrote it
    number   INTEGER NOT NULL,  -- number of its write
    lineage  TEXT    NOT NULL,
    token    INTEGER NOT NULL,
    print    BLOB,
    ends     INTEGER NOT NULL,
    keep     INTEGER NOT NULL,
    day_ends INTEGER NOT NULL,  -- when it ends by the time of day, since 1970: counts only after a restart of the machine
    content  BLOB    NOT NULL
);
CREATE INDEX IF NOT EXISTS leasehold_ended_memos ON leasehold_memo (ends);

-- Grants to waiters, for which every client polls again and again.
CREATE INDEX IF NOT EXISTS leasehold_called ON leasehold_claim (client) WHERE stand = 1;
