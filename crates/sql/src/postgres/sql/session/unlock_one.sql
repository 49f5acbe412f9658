-- Unlocks one key, like unlock, with the answers in their order: whether the session had the key, and, found after the
-- unlock, whether waiters were notified.
SELECT CASE $2
        WHEN 0 THEN pg_advisory_unlock($1)
        WHEN 1 THEN pg_advisory_unlock_shared($1)
        WHEN 2 THEN pg_advisory_unlock(($1 >> 32)::int4, (($1 << 32) >> 32)::int4)
        ELSE pg_advisory_unlock_shared(($1 >> 32)::int4, (($1 << 32) >> 32)::int4) END,
    CASE WHEN $3 IS NULL THEN false
        WHEN pg_try_advisory_lock($3) THEN NOT pg_advisory_unlock($3)
        ELSE length(pg_notify($4, $3::text)::text) >= 0 END
