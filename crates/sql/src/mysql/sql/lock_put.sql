-- Writes the row of a locked name.
UPDATE leasehold_lock SET token = :token, holder = :holder, tokens = :tokens, previous = :previous, owner = :owner, since = :since,
    expires = :expires, client = :client, claims = :claims, ended = :ended, ended_upto = :upto, ended_until = :until
WHERE name = :name
