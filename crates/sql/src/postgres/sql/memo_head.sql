-- What decides about the write of a memo. The caller has locked the row of the name, so no other client changes it.
SELECT left(kind, 64), id, number, ends FROM leasehold_memo WHERE name = $1
