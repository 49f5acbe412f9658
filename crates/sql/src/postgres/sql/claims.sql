-- The claims of a locked name. Those that hold are locked, for they are extended without the lock of their name. Then the others, whose
-- places are extended without it too: at their end one may be lost though its claim just spoke. In the last column of these, and of one
-- without a claim if there are none, the time of the database, read after all locks were had.
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
