-- A part of all names, in order.
-- In:     after which name; how many.
-- Out:    name; whether its row says nothing that is not over for an hour; whether something of it is over that nobody has ended.
SELECT l.name,
    l.holder IS NULL AND l.claims = 0 AND l.ended_until < t.now AND l.token < t.now - 3600000000,
    (l.holder IS NOT NULL AND l.expires <= t.now)
        OR (l.claims > 0 AND EXISTS (SELECT 1 FROM leasehold_claim AS c WHERE c.name = l.name AND c.expires <= t.now))
FROM (SELECT * FROM leasehold_lock WHERE name > :after ORDER BY name LIMIT :count) AS l CROSS JOIN (SELECT :now AS now) AS t
ORDER BY l.name
