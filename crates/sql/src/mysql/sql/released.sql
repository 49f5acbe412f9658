-- The holds that a statement of this transaction has released, and the time of the database.
SELECT name, :now FROM leasehold_lock WHERE name IN (:names) AND stamp = :stamp
