-- Extends holds in the rows of their names; never shortens one. Skips a row that another transaction has locked.
-- In:     names, sorted; ids; first tokens; ttls in microseconds.
-- Out:    names and ids of the extended holds, and the time of the database.
WITH free AS MATERIALIZED (SELECT name FROM leasehold_lock WHERE name = ANY ($1) FOR NO KEY UPDATE SKIP LOCKED)
UPDATE leasehold_lock AS l SET
    expires = greatest(l.expires, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + a.ttl)
FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[]) AS a (name, id, first, ttl) JOIN free USING (name)
WHERE l.name = a.name AND l.holder = a.id AND l.token - l.tokens + 1 = a.first
  AND l.expires > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
RETURNING l.name, l.holder, (date_part('epoch', clock_timestamp()) * 1000000)::bigint
