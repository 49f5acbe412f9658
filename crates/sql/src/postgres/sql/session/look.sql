-- The sessions that have or await keys: the key as pg_locks shows it, the mode, whether it is granted, the session, the
-- program and its address, and whether the program is leasehold by its name. $1: only these keys, as class and object.
SELECT classid::int8, objid::int8, objsubid::int4, mode = 'ExclusiveLock', granted, pid,
    coalesce(application_name, ''), coalesce(host(client_addr), ''), coalesce(usename::text, ''),
    coalesce(application_name, '') = current_setting('application_name')
FROM pg_locks LEFT JOIN pg_stat_activity USING (pid)
WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ($1 IS NULL OR (classid::int8 << 32 | objid::int8, objsubid::int4)
        IN (SELECT key, sub FROM unnest($1::int8[], $2::int4[]) AS wanted (key, sub)))
ORDER BY classid, objid, objsubid, pid
