-- Grants one name, like claim_many. For a single name claim_many costs the server twice the work of this statement.
-- In:     name, id, number of tokens, ttl in microseconds, owner, this client.
-- Keeps:  tokens grow, also across forgotten names: the row without a name has the largest of their tokens (R10).
-- Out:    if the name was granted: newest token, how the previous hold ended, time of the database.
INSERT INTO leasehold_lock AS l (name, token, holder, tokens, owner, since, expires, client)
VALUES ($1, greatest((date_part('epoch', clock_timestamp()) * 1000000)::bigint,
        (SELECT f.token + 1 FROM leasehold_lock AS f WHERE f.name = '')) + $3 - 1, $2, $3, $5,
    (date_part('epoch', clock_timestamp()) * 1000000)::bigint, (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $4, $6)
ON CONFLICT (name) DO UPDATE SET
    token = greatest(l.token + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint) + $3 - 1,
    holder = $2,
    tokens = $3,
    previous = CASE WHEN l.ended_until > (date_part('epoch', clock_timestamp()) * 1000000)::bigint THEN l.ended ELSE 0 END,
    owner = $5,
    since = (date_part('epoch', clock_timestamp()) * 1000000)::bigint,
    expires = (date_part('epoch', clock_timestamp()) * 1000000)::bigint + $4,
    client = $6
WHERE l.holder IS NULL AND l.claims = 0
RETURNING l.token, l.previous, l.since
