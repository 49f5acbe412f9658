-- A part of all names, sorted.
-- In:     the name after which it begins; how many names.
-- Out:    name; whether its row has carried no information for an hour; whether it has an expired claim or hold
--         that its client has not ended.
SELECT l.name,
    l.holder IS NULL AND l.claims = 0 AND l.ended_until < t.now AND l.token < t.now - 3600000000,
    (l.holder IS NOT NULL AND l.expires <= t.now)
        OR (l.claims > 0 AND EXISTS (SELECT 1 FROM leasehold_claim AS c WHERE c.name = l.name AND c.expires <= t.now))
FROM (SELECT * FROM leasehold_lock WHERE name > :after ORDER BY name LIMIT :count) AS l CROSS JOIN (SELECT :now AS now) AS t
ORDER BY l.name
