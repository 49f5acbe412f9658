-- The held or wanted names with this prefix. A longer text than 512 bytes is no name.
SELECT name FROM leasehold_lock
WHERE octet_length(name) <= 512 AND starts_with(name, $1) AND (claims > 0 OR holder IS NOT NULL) ORDER BY name
