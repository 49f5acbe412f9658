-- How many claims wait ahead of that waiting claim of a client that has the fewest ahead of it, over all names; NULL if
-- no claim of the client waits. stand 4: the claim waits.
SELECT MIN(f.ahead) FROM (
    SELECT (SELECT COUNT(*) FROM leasehold_claim AS o WHERE o.name = c.name AND o.stand = 4 AND o.place < c.place) AS ahead
    FROM (SELECT name, MIN(place) AS place FROM leasehold_claim WHERE client = :client AND stand = 4 GROUP BY name) AS c) AS f
