-- The row of a name, locked: until the end of the transaction no other client changes anything of the name.
SELECT token, holder, tokens, previous, left(owner, 512) AS owner, since, expires, client, claims, ended, ended_upto, ended_until
FROM leasehold_lock WHERE name = $1 FOR UPDATE
