-- The names that have rows and begin so.
SELECT name FROM leasehold_lock
WHERE starts_with(name, $1) AND (claims > 0 OR holder IS NOT NULL) ORDER BY name
