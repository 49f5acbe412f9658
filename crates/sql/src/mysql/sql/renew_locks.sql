-- Extends holds in the rows of their names; never shortens one.
-- In:     names, sorted; for each its name, id and first token; ttl in microseconds; stamp.
UPDATE leasehold_lock SET expires = GREATEST(expires, :now + :ttl), stamp = :stamp
WHERE name IN (:names) AND (name, holder, token - tokens + 1) IN (:holds) AND expires > :now
