
-- Memos: what a holder left beside a name. Tables that an earlier version of leasehold made lack this one: it is
-- created when the first memo is written, if the user may create tables, or by running this again.
CREATE TABLE IF NOT EXISTS leasehold_memo (
    name    varbinary(512) NOT NULL PRIMARY KEY,
    kind    varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    id      binary(16)   NOT NULL,  -- claim that wrote it
    number  bigint       NOT NULL,  -- number of its write
    lineage char(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    token   bigint       NOT NULL,
    print   binary(32),
    ends    bigint       NOT NULL,
    content mediumblob   NOT NULL,
    KEY ends (ends)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
