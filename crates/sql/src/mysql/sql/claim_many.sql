-- Grants names that have neither holder nor waiter, each to one exclusive claim.
-- In:     per name, sorted, a row: name, time, newest token, id, number of tokens, owner, end, this client, stamp;
--         names; stamp.
-- Out:    for each name that was granted: name, id, newest token, how the previous hold ended, time of the database.
--         For the other names nothing is done.
-- Keeps:  a row is locked before the clock is read, so no grant is older than the hold that it follows (R3); tokens
--         grow (R10). An assignment affects the assignments below it, so the holder is assigned last. The stamp
--         distinguishes a grant of this statement from an earlier grant to the same claim, which this statement does
--         not extend. A claim that the last statement does not find, because the name was in use, is then made in a
--         transaction.
:floor;
INSERT INTO leasehold_lock (name, since, token, holder, tokens, owner, expires, client, stamp) VALUES :rows
ON DUPLICATE KEY UPDATE
    since = IF(holder IS NULL AND claims = 0, :now, since),
    token = IF(holder IS NULL AND claims = 0, GREATEST(token + 1, since) + VALUES(tokens) - 1, token),
    tokens = IF(holder IS NULL AND claims = 0, VALUES(tokens), tokens),
    previous = IF(holder IS NULL AND claims = 0, IF(ended_until > since, ended, 0), previous),
    owner = IF(holder IS NULL AND claims = 0, VALUES(owner), owner),
    expires = IF(holder IS NULL AND claims = 0, since + VALUES(expires) - VALUES(since), expires),
    client = IF(holder IS NULL AND claims = 0, VALUES(client), client),
    stamp = IF(holder IS NULL AND claims = 0, VALUES(stamp), stamp),
    holder = IF(holder IS NULL AND claims = 0, VALUES(holder), holder);
SELECT name, holder, token, previous, since FROM leasehold_lock WHERE name IN (:names) AND stamp = :stamp
