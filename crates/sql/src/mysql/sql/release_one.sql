-- Releases one hold, like release_many. Executed as a prepared statement where the server prepares it.
-- In:     name, id as hexadecimal digits, and first token; how it ended.
-- Out:    as the last insert id: the time of the database, if the hold was released; then a row was changed.
UPDATE leasehold_lock SET
    holder = NULL,
    owner = '',
    ended = :ended,
    ended_upto = token,
    ended_until = IF(:ended = 0, 0, :now + 3600000000),
    stamp = LAST_INSERT_ID(:now)
WHERE name = :name AND holder = UNHEX(:id) AND token - tokens + 1 = :first AND claims = 0 AND expires > :now
