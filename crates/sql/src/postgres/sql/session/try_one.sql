-- Tries to lock one key, like try. For a single key try costs the server much more than this statement.
-- Returns the id of a transaction that begins after the key was locked, if it was locked.
SELECT CASE WHEN CASE $2
        WHEN 0 THEN pg_try_advisory_lock($1)
        WHEN 1 THEN pg_try_advisory_lock_shared($1)
        WHEN 2 THEN pg_try_advisory_lock(($1 >> 32)::int4, (($1 << 32) >> 32)::int4)
        ELSE pg_try_advisory_lock_shared(($1 >> 32)::int4, (($1 << 32) >> 32)::int4) END
    THEN txid_current() END,
    pg_backend_pid(), coalesce(current_setting('leasehold.session', true), '')
