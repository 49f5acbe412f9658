-- The unconfirmed grants to waiting claims of a client, and the names in their minimum hold time where one of its
-- claims is the head of the queue. stand 1: an unconfirmed grant; 3: a minimum hold time.
SELECT id, stand, token, tokens, previous, claim_time, since, GREATEST(expires - :now, 0) FROM leasehold_claim
WHERE client = :client AND (stand = 1 AND expires > :now OR stand = 3)
