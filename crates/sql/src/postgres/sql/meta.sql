-- What the tables are, and which server this is: version, lineage, its number, the newest piece of its log, whether it only follows
-- another, and how it writes texts.
SELECT version, lineage, (SELECT system_identifier::text FROM pg_control_system()),
    CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_lsn()) END, pg_is_in_recovery(),
    current_setting('server_encoding')
FROM leasehold_meta
