-- Deletes rows of names that nobody has used for an hour. Tokens go on from the clock (R10).
DELETE FROM leasehold_lock
WHERE name IN (:names) AND holder IS NULL AND claims = 0 AND GREATEST(ended_until, token + 3600000000) < :now
