-- Releases fast-path holds that have no waiters.
-- In:     names, sorted; for each its name, id and first token; how all of them ended; stamp.
-- Keeps:  only this very hold is released (R4), and only while it is valid: an expired hold is ended by the client
--         that finds it (R8).
UPDATE leasehold_lock SET
    holder = NULL,
    owner = '',
    ended = :ended,
    ended_upto = token,
    ended_until = IF(:ended = 0, 0, :now + 3600000000),
    stamp = :stamp
WHERE name IN (:names) AND (name, holder, token - tokens + 1) IN (:holds) AND claims = 0 AND expires > :now
