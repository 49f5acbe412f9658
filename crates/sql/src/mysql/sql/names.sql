-- The held or wanted names with this prefix.
SELECT name FROM leasehold_lock
WHERE name >= :prefix AND LEFT(name, :bytes) = :prefix AND (claims > 0 OR holder IS NOT NULL) ORDER BY name
