-- The connection slots; every user may see its own connections.
-- Out:    how many connections the server accepts; how many it accepts from this user, and how many this user has, if
--         there is such a limit; and, in the second result, how many connections there are.
SELECT @@max_connections, @@session.max_user_connections, IF(@@session.max_user_connections > 0,
    (SELECT COUNT(*) FROM information_schema.processlist WHERE user = SUBSTRING_INDEX(USER(), '@', 1)), 0);
SHOW GLOBAL STATUS LIKE 'Threads_connected'
