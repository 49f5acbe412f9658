-- Stores a memo of a locked name.
INSERT INTO leasehold_memo (name, kind, id, number, lineage, token, print, ends, content) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (name) DO UPDATE SET kind = excluded.kind, id = excluded.id, number = excluded.number, lineage = excluded.lineage,
    token = excluded.token, print = excluded.print, ends = excluded.ends, content = excluded.content
