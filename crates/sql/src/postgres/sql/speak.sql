-- Lets places in line live on, and says which of the claims hold by now.
-- In:     names, in order; ids; for how many microseconds a place lasts.
-- Out:    of each that stands: id, stand, and the time of the database.
UPDATE leasehold_claim AS c SET
    expires = CASE WHEN c.stand IN (4, 5)
        THEN greatest(c.expires, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + a.life) ELSE c.expires END
FROM unnest($1::text[], $2::bytea[], $3::bigint[]) AS a (name, id, life)
WHERE c.name = a.name AND c.id = a.id
  AND c.expires > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
RETURNING c.id, c.stand, (date_part('epoch', clock_timestamp()) * 1000000)::bigint
