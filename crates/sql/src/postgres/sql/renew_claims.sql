-- Extends holds in claim rows (stand 0); for a hold that was granted to a waiter (1) this is the confirmation. Skips
-- a row that another transaction has locked.
-- In:     names, sorted; ids; first tokens; ttls in microseconds.
-- Out:    names and ids of the extended holds, and the time of the database.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[]) AS a (name, id, first, ttl)
), free AS MATERIALIZED (
    SELECT c.name, c.id FROM asked JOIN leasehold_claim AS c USING (name, id) FOR NO KEY UPDATE OF c SKIP LOCKED
)
UPDATE leasehold_claim AS c SET
    expires = greatest(c.expires, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + asked.ttl),
    stand = 0, claim_time = 0, place_since = 0, place_expires = 0
FROM asked JOIN free USING (name, id)
WHERE c.name = asked.name AND c.id = asked.id AND c.token = asked.first AND c.stand IN (0, 1)
  AND c.expires > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
RETURNING c.name, c.id, (date_part('epoch', clock_timestamp()) * 1000000)::bigint
