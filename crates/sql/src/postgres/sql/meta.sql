-- The identity of the tables and of the server: version, lineage, system identifier, newest segment of the log,
-- whether the server is a replica, and the encoding of its texts.
SELECT version, lineage, (SELECT system_identifier::text FROM pg_control_system()),
    CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_lsn()) END, pg_is_in_recovery(),
    current_setting('server_encoding')
FROM leasehold_meta
