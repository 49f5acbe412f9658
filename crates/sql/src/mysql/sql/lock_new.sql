-- Makes the row of a name, if it is not there, and locks it.
-- Keeps:  who finds it locks it as who changes it does: with a shared lock, as INSERT IGNORE takes, two would wait for each other.
:floor;
INSERT INTO leasehold_lock (name, token) VALUES (:name, @floor) ON DUPLICATE KEY UPDATE token = token
