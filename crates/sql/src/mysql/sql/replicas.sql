-- How many replicas MySQL sends its log to: the number of their connections, all of which are visible only to a user
-- with the right PROCESS. MariaDB has a status value for it.
-- In:     nothing.
-- Out:    the number; whether this user has the right, as far as it was granted directly.
SELECT 'binlog_dumps', CAST(COUNT(*) AS char) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%';
SELECT 'sees_processes', CAST(COUNT(*) AS char) FROM information_schema.user_privileges
WHERE privilege_type = 'PROCESS' AND grantee = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')
