-- Stores the largest token of the names that were unused for an hour in the row without a name, so that later tokens
-- are larger than that token (R10). Then deletes the rows of these names; a row whose token is not stored stays.
INSERT INTO leasehold_lock (name, token)
SELECT '', MAX(token) FROM leasehold_lock AS l
WHERE name IN (:names) AND holder IS NULL AND claims = 0 AND GREATEST(ended_until, token + 3600000000) < :now HAVING COUNT(*) > 0
ON DUPLICATE KEY UPDATE token = GREATEST(leasehold_lock.token, VALUES(token));
:floor;
DELETE FROM leasehold_lock
WHERE name IN (:names) AND holder IS NULL AND claims = 0 AND GREATEST(ended_until, token + 3600000000) < :now AND token <= @floor
