-- Of each of some names that somebody holds: in how many microseconds the first of its holds is over, unless it is extended.
SELECT h.name, min(h.expires) - (date_part('epoch', clock_timestamp()) * 1000000)::bigint
FROM (SELECT name, expires FROM leasehold_lock WHERE name = ANY ($1) AND holder IS NOT NULL
      UNION ALL SELECT name, expires FROM leasehold_claim WHERE name = ANY ($1) AND stand < 4) AS h
GROUP BY h.name
