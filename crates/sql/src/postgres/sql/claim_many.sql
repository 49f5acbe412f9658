-- Grants names that have neither holder nor waiter, each to one exclusive claim.
-- In:     names, sorted, each once; ids; numbers of tokens; ttls in microseconds; owners; this client.
-- Out:    a row for each name that was granted: name, newest token, how the previous hold ended, time of the database.
--         For the other names nothing is done.
-- Keeps:  a row is locked before the clock is read, so no grant is older than the hold that it follows (R3); tokens
--         grow (R10), also across forgotten names: the row without a name has the largest of their tokens.
INSERT INTO leasehold_lock AS l (name, token, holder, tokens, owner, since, expires, client)
SELECT a.name, greatest(t.now, t.floor + 1) + a.tokens - 1, a.id, a.tokens, a.owner, t.now, t.now + a.ttl, $6
FROM unnest($1::text[], $2::bytea[], $3::integer[], $4::bigint[], $5::text[]) AS a (name, id, tokens, ttl, owner),
     LATERAL (SELECT (date_part('epoch', clock_timestamp()) * 1000000)::bigint AS now,
         (SELECT f.token FROM leasehold_lock AS f WHERE f.name = '') AS floor) AS t
ON CONFLICT (name) DO UPDATE SET
    token = greatest(l.token + 1, (date_part('epoch', clock_timestamp()) * 1000000)::bigint) + excluded.tokens - 1,
    holder = excluded.holder,
    tokens = excluded.tokens,
    previous = CASE WHEN l.ended_until > (date_part('epoch', clock_timestamp()) * 1000000)::bigint THEN l.ended ELSE 0 END,
    owner = excluded.owner,
    since = (date_part('epoch', clock_timestamp()) * 1000000)::bigint,
    expires = (date_part('epoch', clock_timestamp()) * 1000000)::bigint + (excluded.expires - excluded.since),
    client = excluded.client
WHERE l.holder IS NULL AND l.claims = 0
RETURNING l.name, l.token, l.previous, l.since
