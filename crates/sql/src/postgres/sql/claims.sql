-- The claims of a locked name. First the claims that hold: their rows are locked here, because a renewal extends them
-- without the lock of their name. Then the other claims, whose rows are not locked here. Their queue entries are
-- extended without the lock of their name, too, so an entry that expires now may be lost although its client has just
-- extended it. The last column of these rows (or of one row without a claim, if there are none) is the time of the
-- database, read after all locks were acquired.
WITH holds AS MATERIALIZED (
    SELECT id, stand, place, mode, count, most, token, tokens, previous, left(owner, 512) AS owner, since, expires, claim_time, place_since, place_expires,
        client
    FROM leasehold_claim WHERE name = $1 AND stand < 4 FOR UPDATE
)
SELECT *, NULL::bigint FROM holds
UNION ALL
SELECT c.id, c.stand, c.place, c.mode, c.count, c.most, c.token, c.tokens, c.previous, left(c.owner, 512), c.since, c.expires, c.claim_time,
    c.place_since, c.place_expires, c.client, (date_part('epoch', clock_timestamp()) * 1000000)::bigint
FROM (SELECT 1) AS once LEFT JOIN leasehold_claim AS c ON c.name = $1 AND c.stand >= 4
