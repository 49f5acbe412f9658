-- What was granted to claims of a client while they stood in line, and has not been confirmed; and names that are kept taken while one
-- of its claims is the first in line.
SELECT id, stand, token, tokens, previous, claim_time, since, GREATEST(expires - :now, 0) FROM leasehold_claim
WHERE client = :client AND (stand = 1 AND expires > :now OR stand = 3)
