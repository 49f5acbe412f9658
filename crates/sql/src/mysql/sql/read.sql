-- The row of a name and its claim rows, locked: until the end of the transaction no other client changes anything of
-- the name. Then the time of the database, read after all locks were acquired.
SELECT token, holder, tokens, previous, owner, since, expires, client, claims, ended, ended_upto, ended_until
FROM leasehold_lock WHERE name = :name FOR UPDATE;
SELECT id, stand, place, mode, count, most, token, tokens, previous, owner, since, expires, claim_time, place_since, place_expires, client
FROM leasehold_claim FORCE INDEX (PRIMARY) WHERE name = :name ORDER BY id FOR UPDATE;
SELECT :now
