-- The holds that were extended, and the time of the database.
-- In:     the candidates by name, id and first token; stamp.
SELECT name, id, :now FROM leasehold_claim FORCE INDEX (PRIMARY) WHERE (:claims) AND stamp = :stamp
