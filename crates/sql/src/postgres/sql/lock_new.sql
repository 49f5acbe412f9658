-- Makes the row of a name, if it is not there.
INSERT INTO leasehold_lock (name, token) VALUES ($1, 0) ON CONFLICT DO NOTHING
