
-- Last, so that the other tables exist when its row exists.
CREATE TABLE IF NOT EXISTS leasehold_meta (
    one     smallint NOT NULL PRIMARY KEY,
    version int      NOT NULL,
    lineage char(32) CHARACTER SET ascii COLLATE ascii_bin NOT NULL  -- distinguishes these tables from others of the same name
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;
INSERT IGNORE INTO leasehold_meta VALUES (1, 1, REPLACE(UUID(), '-', ''));
