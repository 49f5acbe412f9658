-- All rows of some names, and the time of the database: per name its own row, joined with each of its claims or
-- alone. Reads only the beginning of an owner, because another program may have written a longer text.
SELECT l.name, (date_part('epoch', clock_timestamp()) * 1000000)::bigint,
    l.token, l.holder, l.tokens, l.previous, left(l.owner, 512) AS owner, l.since, l.expires, l.client, l.claims, l.ended, l.ended_upto, l.ended_until,
    c.id, c.stand, c.place, c.mode, c.count, c.most, c.token, c.tokens, c.previous, left(c.owner, 512) AS owner, c.since, c.expires, c.claim_time,
    c.place_since, c.place_expires, c.client
FROM leasehold_lock AS l LEFT JOIN leasehold_claim AS c ON c.name = l.name
WHERE l.name = ANY ($1) ORDER BY l.name, c.place
