-- Stores a memo of a locked name.
REPLACE INTO leasehold_memo (name, kind, id, number, lineage, token, print, ends, content)
VALUES (:name, :kind, :id, :number, :lineage, :token, :print, :ends, :content)
