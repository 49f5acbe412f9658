-- The holds that were extended, and the time of the database.
SELECT name, holder, :now FROM leasehold_lock WHERE name IN (:names) AND stamp = :stamp
