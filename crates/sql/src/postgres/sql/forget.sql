-- Deletes rows of names that nobody has used for an hour, and remembers the largest of their tokens in the row without a name: by a clock
-- that was set forward meanwhile, they may be larger than what the clock says now (R10).
WITH gone AS (
    DELETE FROM leasehold_lock
    WHERE name = ANY ($1) AND holder IS NULL AND claims = 0
      AND greatest(ended_until, token + 3600000000) < (date_part('epoch', clock_timestamp()) * 1000000)::bigint
    RETURNING token
)
INSERT INTO leasehold_lock AS l (name, token) SELECT '', max(token) FROM gone HAVING count(*) > 0
ON CONFLICT (name) DO UPDATE SET token = greatest(l.token, excluded.token)
