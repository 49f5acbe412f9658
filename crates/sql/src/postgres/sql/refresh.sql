-- Extends the queue entries of claims that wait (stand 4) or missed their grant (5), and reads the current state of
-- these claims.
-- In:     names, sorted; ids; how many microseconds an entry lasts; and how long a grant without a confirmation
--         lasts.
-- Out:    for each claim that exists: id, state, the time of the database, how many microseconds remain until the
--         earliest end of the holds of its name, if no hold is extended, and how many claims wait ahead of it. The
--         same statement can also read `slots.sql`: then the columns of its row follow in each row.
WITH extended AS (
    UPDATE leasehold_claim AS c SET
        expires = CASE WHEN c.stand IN (4, 5)
            THEN greatest(c.expires, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + a.life) ELSE c.expires END,
        claim_time = CASE WHEN c.stand IN (4, 5) THEN a.claim_time ELSE c.claim_time END
    FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[]) AS a (name, id, life, claim_time)
    WHERE c.name = a.name AND c.id = a.id
      AND c.expires > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
    RETURNING c.name, c.id, c.stand, c.place
), held AS (
    SELECT h.name, min(h.expires) AS ends
    FROM (SELECT name, expires FROM leasehold_lock WHERE name = ANY ($1) AND holder IS NOT NULL
          UNION ALL SELECT name, expires FROM leasehold_claim WHERE name = ANY ($1) AND stand < 4) AS h
    GROUP BY h.name
), states AS (
    SELECT s.id, s.stand, t.now, h.ends - t.now AS remaining,
        (SELECT count(*) FROM leasehold_claim AS o WHERE o.name = s.name AND o.stand = 4 AND o.place < s.place) AS ahead
    FROM (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now) AS t,
        extended AS s LEFT JOIN held AS h ON h.name = s.name
)
SELECT * FROM states
