-- Locks $2 of these keys, or none. A session that takes several keys takes them alone, so that two sessions do not
-- refuse each other: the gate is open unless another session takes keys of the name at this moment.
WITH gate AS MATERIALIZED (SELECT CASE WHEN $2 > 1 THEN pg_try_advisory_xact_lock($3)
    ELSE pg_try_advisory_xact_lock_shared($3) END AS is_open),
got AS MATERIALIZED (SELECT key FROM unnest($1::int8[]) AS wanted (key)
    WHERE CASE WHEN (SELECT is_open FROM gate) THEN pg_try_advisory_lock(key) ELSE false END LIMIT $2)
SELECT (SELECT is_open FROM gate), coalesce(array_agg(key), '{}'),
    count(CASE WHEN (SELECT count(*) FROM got) < $2 THEN pg_advisory_unlock(key) END) > 0
FROM got
