-- For each of some names that is held: how many microseconds remain until the earliest end of its holds, if no hold is
-- extended. stand below 4: the claim holds the name.
SELECT h.name, MIN(h.expires) - :now
FROM (SELECT name, expires FROM leasehold_lock WHERE name IN (:names) AND holder IS NOT NULL
      UNION ALL SELECT name, expires FROM leasehold_claim WHERE name IN (:names) AND stand < 4) AS h
GROUP BY h.name
