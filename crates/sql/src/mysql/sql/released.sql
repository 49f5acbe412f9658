-- Which holds were ended by a statement of this transaction, and the time of the database.
SELECT name, :now FROM leasehold_lock WHERE name IN (:names) AND stamp = :stamp
