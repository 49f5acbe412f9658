-- Releases fast-path holds that have no waiters.
-- In:     names, sorted, each once; ids; first tokens; how each ended.
-- Out:    the names of the released holds, and the time of the database. For the other holds nothing is done.
-- Keeps:  only this very hold is released (R4), and only while it is valid: an expired hold is ended by the client
--         that finds it (R8).
UPDATE leasehold_lock AS l SET
    holder = NULL,
    owner = '',
    ended = a.ended,
    ended_upto = l.token,
    ended_until = CASE WHEN a.ended = 0 THEN 0 ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint + 3600000000 END
FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::smallint[]) AS a (name, id, first, ended)
WHERE l.name = a.name AND l.holder = a.id AND l.token - l.tokens + 1 = a.first AND l.claims = 0
  AND l.expires > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
RETURNING l.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint
