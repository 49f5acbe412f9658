-- Deletes rows of names that were unused for an hour. Before that, stores the largest of their tokens in the row
-- without a name: later tokens are larger than that and follow the clock (R10). A row whose token is not stored
-- stays.
INSERT INTO leasehold_lock (name, token)
SELECT '', MAX(token) FROM leasehold_lock AS l
WHERE name IN (:names) AND holder IS NULL AND claims = 0 AND GREATEST(ended_until, token + 3600000000) < :now HAVING COUNT(*) > 0
ON DUPLICATE KEY UPDATE token = GREATEST(leasehold_lock.token, VALUES(token));
:floor;
DELETE FROM leasehold_lock
WHERE name IN (:names) AND holder IS NULL AND claims = 0 AND GREATEST(ended_until, token + 3600000000) < :now AND token <= @floor
