-- Ends holds that were taken in one statement and that nobody waits behind.
-- In:     names, in order; for each its name, id and first token; how all of them ended; stamp.
-- Keeps:  only the very hold is ended (R4), and only while it stands: one that lapsed is ended by who finds that (R8).
UPDATE leasehold_lock SET
    holder = NULL,
    owner = '',
    ended = :ended,
    ended_upto = token,
    ended_until = IF(:ended = 0, 0, :now + 3600000000),
    stamp = :stamp
WHERE name IN (:names) AND (name, holder, token - tokens + 1) IN (:holds) AND claims = 0 AND expires > :now
