-- The current state of the claims of a client, and the time of the database.
SELECT id, stand, :now FROM leasehold_claim WHERE client = :client AND expires > :now
