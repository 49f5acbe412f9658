-- Unlocks each key, and notifies the processes that wait for it, if another session has the key of the waiters.
SELECT coalesce(array_agg(unlocked), '{}'), coalesce(array_agg(woke), '{}') FROM (
    SELECT CASE how
        WHEN 0 THEN pg_advisory_unlock(key)
        WHEN 1 THEN pg_advisory_unlock_shared(key)
        WHEN 2 THEN pg_advisory_unlock((key >> 32)::int4, ((key << 32) >> 32)::int4)
        ELSE pg_advisory_unlock_shared((key >> 32)::int4, ((key << 32) >> 32)::int4) END AS unlocked,
    CASE WHEN waiters IS NULL THEN false
        WHEN pg_try_advisory_lock(waiters) THEN NOT pg_advisory_unlock(waiters)
        ELSE length(pg_notify(channel, waiters::text)::text) >= 0 END AS woke
    FROM unnest($1::int8[], $2::int2[], $3::int8[], $4::text[]) AS held (key, how, waiters, channel) OFFSET 0) AS done
