-- Deletes rows of names that nobody has used for an hour. Tokens go on from the clock (R10).
DELETE FROM leasehold_lock
WHERE name = ANY ($1) AND holder IS NULL AND claims = 0
  AND greatest(ended_until, token + 3600000000) < (date_part('epoch', clock_timestamp()) * 1000000)::bigint
