-- Unlocks those of these keys that this session has.
SELECT count(CASE how
    WHEN 0 THEN pg_advisory_unlock(key)
    WHEN 1 THEN pg_advisory_unlock_shared(key)
    WHEN 2 THEN pg_advisory_unlock((key >> 32)::int4, ((key << 32) >> 32)::int4)
    ELSE pg_advisory_unlock_shared((key >> 32)::int4, ((key << 32) >> 32)::int4) END)
FROM unnest($1::int8[], $2::int2[]) AS tried (key, how)
WHERE EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted
    AND classid::int8 = (key >> 32) & 4294967295 AND objid::int8 = key & 4294967295
    AND objsubid = CASE WHEN how < 2 THEN 1 ELSE 2 END
    AND mode = CASE WHEN how % 2 = 0 THEN 'ExclusiveLock' ELSE 'ShareLock' END)
