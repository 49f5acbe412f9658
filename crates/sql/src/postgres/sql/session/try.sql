-- Tries to lock each key. How: 0 for a bigint alone, 1 for a bigint beside others, 2 and 3 the same for two ints in one
-- number. Returns what was locked, and the id of a transaction that begins after that, if something was locked or $3.
SELECT tried.results, CASE WHEN $3 OR true = ANY (tried.results) THEN txid_current() END,
    pg_backend_pid(), coalesce(current_setting('leasehold.session', true), '')
FROM (SELECT coalesce(array_agg(CASE how
    WHEN 0 THEN pg_try_advisory_lock(key)
    WHEN 1 THEN pg_try_advisory_lock_shared(key)
    WHEN 2 THEN pg_try_advisory_lock((key >> 32)::int4, ((key << 32) >> 32)::int4)
    ELSE pg_try_advisory_lock_shared((key >> 32)::int4, ((key << 32) >> 32)::int4) END), '{}') AS results
    FROM unnest($1::int8[], $2::int2[]) AS wanted (key, how)) AS tried
