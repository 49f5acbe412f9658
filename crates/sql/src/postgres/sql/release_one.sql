-- Releases one hold, like release_many.
-- In:     name, id, first token, how it ended.
-- Out:    if it was released: the time of the database.
UPDATE leasehold_lock AS l SET
    holder = NULL,
    owner = '',
    ended = $4,
    ended_upto = l.token,
    ended_until = CASE WHEN $4 = 0 THEN 0 ELSE (date_part('epoch', clock_timestamp()) * 1000000)::bigint + 3600000000 END
WHERE l.name = $1 AND l.holder = $2 AND l.token - l.tokens + 1 = $3 AND l.claims = 0
  AND l.expires > (date_part('epoch', clock_timestamp()) * 1000000)::bigint
RETURNING (date_part('epoch', clock_timestamp()) * 1000000)::bigint
