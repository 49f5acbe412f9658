-- Deletes those of these memos that were not written again by another claim, and that have still ended. Their claims
-- hold the name no more, and a claim never holds it a second time.
DELETE FROM leasehold_memo WHERE name IN (:names) AND (name, id) IN (:memos) AND ends <= :now
