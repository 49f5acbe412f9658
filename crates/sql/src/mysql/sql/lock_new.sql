-- Creates the row of a name if it does not exist, and locks it.
-- Keeps:  an existing row is locked as by a change. With a shared lock, as INSERT IGNORE takes it, two clients would
--         deadlock.
:floor;
INSERT INTO leasehold_lock (name, token) VALUES (:name, @floor) ON DUPLICATE KEY UPDATE token = token
