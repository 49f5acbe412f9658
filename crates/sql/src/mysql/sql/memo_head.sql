-- What decides about the write of a memo. The caller has locked the row of the name, so no other client changes it.
SELECT kind, id, number, ends FROM leasehold_memo WHERE name = :name FOR UPDATE
