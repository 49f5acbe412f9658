-- Extends the queue entries of claims that wait (stand 4) or missed their grant (5).
-- In:     the claims by name and id, sorted; how many microseconds an entry lasts, and how long a grant without a
--         confirmation lasts.
-- Keeps:  rows are locked in the same order as by a transaction on their name.
UPDATE leasehold_claim FORCE INDEX (PRIMARY) SET expires = GREATEST(expires, :now + :life), claim_time = :claimtime
WHERE (:claims) AND stand IN (4, 5) AND expires > :now
