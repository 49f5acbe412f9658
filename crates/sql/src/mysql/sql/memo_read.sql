-- The memo of a name, the time of the database, and the rows of the claim that wrote the memo: all of one moment. The
-- row of the name may be missing.
SELECT m.kind, LEFT(m.content, 65537), m.print, m.id, m.number, m.lineage, m.token, m.ends, :now, l.name IS NOT NULL,
    l.token, l.holder, l.tokens, l.previous, l.owner, l.since, l.expires, l.client, l.claims, l.ended, l.ended_upto, l.ended_until,
    c.id, c.stand, c.place, c.mode, c.count, c.most, c.token, c.tokens, c.previous, c.owner, c.since, c.expires, c.claim_time,
    c.place_since, c.place_expires, c.client
FROM leasehold_memo AS m LEFT JOIN leasehold_lock AS l ON l.name = m.name
    LEFT JOIN leasehold_claim AS c ON c.name = m.name AND c.id = m.id
WHERE m.name = :name
