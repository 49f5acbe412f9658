-- How many connections the server accepts; how many it accepts from this user, and how many that user has, if there
-- is such a limit; and, in the second result, how many there are. Every user may see its own.
SELECT @@max_connections, @@session.max_user_connections, IF(@@session.max_user_connections > 0,
    (SELECT COUNT(*) FROM information_schema.processlist WHERE user = SUBSTRING_INDEX(USER(), '@', 1)), 0);
SHOW GLOBAL STATUS LIKE 'Threads_connected'
