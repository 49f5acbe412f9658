-- How many connections the server takes; how many it takes of this user, and how many that one has, if there is such a limit; and, in
-- the second answer, how many there are. Everybody may see his own.
SELECT @@max_connections, @@session.max_user_connections, IF(@@session.max_user_connections > 0,
    (SELECT COUNT(*) FROM information_schema.processlist WHERE user = SUBSTRING_INDEX(USER(), '@', 1)), 0);
SHOW GLOBAL STATUS LIKE 'Threads_connected'
