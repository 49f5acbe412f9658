-- Takes one name, like claim_many, and returns no rows.
-- In:     name, id, number of tokens, the same number less one, owner, ttl in microseconds, this client.
-- Out:    as the last insert id: the newest token, if the name was taken; then a row was changed. It is computed from
--         the time of the database, so this statement does not take a name whose tokens may be ahead of that time, nor
--         a name whose last hold did not end cleanly.
-- Keeps:  as claim_many. No token is older than its grant, so after the first assignment only a name that is taken
--         now has a time beyond its token, even if the clock goes back meanwhile; the token is assigned last.
:floor;
INSERT INTO leasehold_lock (name, since, token, holder, tokens, owner, expires, client)
VALUES (:name, :now,
    IF(@floor < since, LAST_INSERT_ID(since + :more), @floor), IF(@floor < since, :id, NULL), :tokens, :owner, since + :ttl, :client)
ON DUPLICATE KEY UPDATE
    since = IF(holder IS NULL AND claims = 0 AND token < :now AND ended_until <= :now, GREATEST(token + 1, :now), since),
    holder = IF(since > token, VALUES(holder), holder),
    tokens = IF(since > token, VALUES(tokens), tokens),
    previous = IF(since > token, 0, previous),
    owner = IF(since > token, VALUES(owner), owner),
    expires = IF(since > token, since + :ttl, expires),
    client = IF(since > token, VALUES(client), client),
    token = IF(since > token, LAST_INSERT_ID(since + :more), token)
