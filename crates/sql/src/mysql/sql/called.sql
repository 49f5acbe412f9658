-- What was granted to claims of a client while they stood in line, and has not been confirmed.
SELECT id, token, tokens, previous, claim_time, since FROM leasehold_claim WHERE client = :client AND stand = 1 AND expires > :now
