-- Lets places in line live on, and says which of the claims hold by now.
-- In:     names, in order; ids; for how many microseconds a place lasts.
-- Out:    of each that stands: id, stand, the time of the database, and in how many microseconds the first hold of its name is over,
--         unless it is extended.
WITH spoken AS (
    UPDATE leasehold_claim AS c SET
        expires = CASE WHEN c.stand IN (4, 5)
            THEN greatest(c.expires, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + a.life) ELSE c.expires END
    FROM unnest($1::text[], $2::bytea[], $3::bigint[]) AS a (name, id, life)
    WHERE c.name = a.name AND c.id = a.id
      AND c.expires > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
    RETURNING c.name, c.id, c.stand
), held AS (
    SELECT h.name, min(h.expires) AS ends
    FROM (SELECT name, expires FROM leasehold_lock WHERE name = ANY ($1) AND holder IS NOT NULL
          UNION ALL SELECT name, expires FROM leasehold_claim WHERE name = ANY ($1) AND stand < 4) AS h
    GROUP BY h.name
)
SELECT s.id, s.stand, t.now, h.ends - t.now
FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) AS t,
    spoken AS s LEFT JOIN held AS h ON h.name = s.name
