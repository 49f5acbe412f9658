
-- Memos: what a holder left beside a name. Tables that an earlier version of leasehold made lack this one: it is
-- created when the first memo is written, if the user may create tables, or by running this again.
CREATE TABLE IF NOT EXISTS leasehold_memo (
    name    text COLLATE "C" PRIMARY KEY,
    kind    text     NOT NULL,
    id      bytea    NOT NULL,  -- claim that wrote it
    number  bigint   NOT NULL,  -- number of its write
    lineage text     NOT NULL,
    token   bigint   NOT NULL,
    print   bytea,
    ends    bigint   NOT NULL,
    content bytea    NOT NULL
);
CREATE INDEX IF NOT EXISTS leasehold_ended_memos ON leasehold_memo (ends);
