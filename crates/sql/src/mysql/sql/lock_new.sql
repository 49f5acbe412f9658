-- Creates the row of a name if it does not exist, and locks it.
-- Keeps:  an existing row gets the exclusive lock of a change. With the shared lock of INSERT IGNORE two clients would
--         deadlock.
:floor;
INSERT INTO leasehold_lock (name, token) VALUES (:name, @floor) ON DUPLICATE KEY UPDATE token = token
