-- Takes names that nobody holds or wants, each for one exclusive claim.
-- In:     a row for each name, in order: name, time, newest token, id, how many tokens, owner, end, this client, stamp; names; stamp.
-- Out:    of each that was taken: name, id, newest token, how the hold before it ended, time of the database. For the others nothing
--         is done.
-- Keeps:  a row is locked before its clock is read, so no grant is older than what it follows (R3); tokens grow (R10). What is
--         assigned counts for what is assigned below it, so the claim that holds comes last. The stamp tells what was taken now from
--         what the same claim took before, which nobody extends here. What is not found again, since others were there already, is
--         asked for in a transaction.
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
