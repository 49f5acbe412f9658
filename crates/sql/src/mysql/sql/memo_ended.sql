-- Memos that have ended, up to 1000, except those whose claim still holds the name. Locks no row. The time is that of
-- the begin of the statement: whoever wrote a memo that had ended by then held the name before, so the statement sees
-- the rows of that hold.
SELECT m.name, m.id FROM leasehold_memo AS m
WHERE m.ends <= UNIX_TIMESTAMP(NOW(6)) * 1000000
    AND NOT EXISTS (SELECT 1 FROM leasehold_lock AS l
        WHERE l.name = m.name AND l.holder = m.id AND l.expires > UNIX_TIMESTAMP(NOW(6)) * 1000000)
    AND NOT EXISTS (SELECT 1 FROM leasehold_claim AS c
        WHERE c.name = m.name AND c.id = m.id AND c.stand < 2 AND c.expires > UNIX_TIMESTAMP(NOW(6)) * 1000000)
LIMIT 1000
