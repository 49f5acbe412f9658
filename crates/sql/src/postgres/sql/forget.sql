-- Deletes rows of names that were unused for an hour, and stores the largest of their tokens in the row without a
-- name: if the clock was ahead meanwhile, that token may be larger than the time now (R10).
WITH gone AS (
    DELETE FROM leasehold_lock
    WHERE name = ANY ($1) AND holder IS NULL AND claims = 0
      AND greatest(ended_until, token + 3600000000) < (date_part('epoch', clock_timestamp()) * 1000000)::bigint
    RETURNING token
)
INSERT INTO leasehold_lock AS l (name, token) SELECT '', max(token) FROM gone HAVING count(*) > 0
ON CONFLICT (name) DO UPDATE SET token = greatest(l.token, excluded.token)
