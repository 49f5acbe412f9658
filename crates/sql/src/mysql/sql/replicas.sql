-- How many replicas MySQL sends its log to: their connections, which only who has the right PROCESS sees all of. MariaDB has a figure.
-- In:     nothing. Out: their number; whether this user has the right, as far as it was given to itself.
SELECT 'binlog_dumps', CAST(COUNT(*) AS char) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%';
SELECT 'sees_processes', CAST(COUNT(*) AS char) FROM information_schema.user_privileges
WHERE privilege_type = 'PROCESS' AND grantee = CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')
