-- Creates the row of a name if it does not exist.
INSERT INTO leasehold_lock (name, token) VALUES ($1, coalesce((SELECT f.token FROM leasehold_lock AS f WHERE f.name = ''), 0))
ON CONFLICT DO NOTHING
