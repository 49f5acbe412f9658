-- Deletes rows of claims of a locked name.
DELETE FROM leasehold_claim WHERE name = :name AND id IN (:ids)
