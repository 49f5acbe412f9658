-- Extends holds in claim rows (stand 0); for a hold that was granted to a waiter (1) this is the confirmation.
-- In:     the claims by name, id and first token, sorted; ttl in microseconds; stamp.
UPDATE leasehold_claim FORCE INDEX (PRIMARY) SET
    expires = GREATEST(expires, :now + :ttl), stand = 0, claim_time = 0, place_since = 0, place_expires = 0, stamp = :stamp
WHERE (:claims) AND stand IN (0, 1) AND expires > :now
