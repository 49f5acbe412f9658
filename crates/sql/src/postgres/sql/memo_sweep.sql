-- Deletes memos that have ended, up to 1000, except those that another client is writing, and those whose claim still
-- holds the name. The time is that of the begin of the statement: whoever wrote a memo that had ended by then held the
-- name before, so the statement sees the rows of that hold.
-- Out:    one row per deleted memo.
DELETE FROM leasehold_memo WHERE name IN (
    SELECT m.name FROM leasehold_memo AS m, (SELECT (date_part('epoch', statement_timestamp()) * 1000000)::bigint AS now) AS begin
    WHERE m.ends <= begin.now
        AND NOT EXISTS (SELECT FROM leasehold_lock AS l WHERE l.name = m.name AND l.holder = m.id AND l.expires > begin.now)
        AND NOT EXISTS (SELECT FROM leasehold_claim AS c
            WHERE c.name = m.name AND c.id = m.id AND c.stand < 2 AND c.expires > begin.now)
    LIMIT 1000 FOR UPDATE OF m SKIP LOCKED
) RETURNING true
