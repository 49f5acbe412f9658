-- Grants one name, like claim_many, and returns no rows.
-- In:     name, id, number of tokens, the same number less one, owner, ttl in microseconds, this client.
-- Out:    as the last insert id: the newest token, if the name was granted; then a row was changed. The token is
--         computed from the time of the database, so this statement does not grant a name whose tokens may be ahead of
--         that time, nor a name whose last hold did not end cleanly.
-- Keeps:  as claim_many. No token is smaller than the time of its grant (since). So after the first assignment since is
--         larger than token only if this statement grants the name, even if the clock goes back meanwhile. The token
--         is assigned last, because all other assignments compare with it. The floor counts for new rows only, so a row
--         that exists gets the id itself and not VALUES(holder), which is NULL while the floor is ahead of the clock.
:floor;
INSERT INTO leasehold_lock (name, since, token, holder, tokens, owner, expires, client)
VALUES (:name, :now,
    IF(@floor < since, LAST_INSERT_ID(since + :more), @floor), IF(@floor < since, :id, NULL), :tokens, :owner, since + :ttl, :client)
ON DUPLICATE KEY UPDATE
    since = IF(holder IS NULL AND claims = 0 AND token < :now AND ended_until <= :now, GREATEST(token + 1, :now), since),
    holder = IF(since > token, :id, holder),
    tokens = IF(since > token, VALUES(tokens), tokens),
    previous = IF(since > token, 0, previous),
    owner = IF(since > token, VALUES(owner), owner),
    expires = IF(since > token, since + :ttl, expires),
    client = IF(since > token, VALUES(client), client),
    token = IF(since > token, LAST_INSERT_ID(since + :more), token)
