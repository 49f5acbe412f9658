-- Extends holds that stand in rows of claims; one that was granted to who waited is confirmed by it.
-- In:     which they are, by name, id and first token, in order; ttl in microseconds; stamp.
UPDATE leasehold_claim FORCE INDEX (PRIMARY) SET
    expires = GREATEST(expires, :now + :ttl), stand = 0, claim_time = 0, place_since = 0, place_expires = 0, stamp = :stamp
WHERE (:claims) AND stand IN (0, 1) AND expires > :now
