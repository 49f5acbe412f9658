-- Lets places in line live on.
-- In:     which they are, by name and id, in order; for how many microseconds a place lasts, and a grant of which nobody has heard.
-- Keeps:  rows are locked in the order in which a transaction about their name locks them.
UPDATE leasehold_claim FORCE INDEX (PRIMARY) SET expires = GREATEST(expires, :now + :life), claim_time = :unheard
WHERE (:claims) AND stand IN (4, 5) AND expires > :now
