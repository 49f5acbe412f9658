-- Deletes claim rows of a locked name.
DELETE FROM leasehold_claim WHERE name = :name AND id IN (:ids)
