-- The timeouts after which the server ends a session that it receives nothing from. All are the same, because the
-- client cannot know whether the server waits for a request, for the rest of one, or for an answer to leave.
-- In:     the timeout in seconds.
-- Out:    the number of the connection, its address as the server sees it, the timeouts as they are now, and the
--         database in the one spelling that all sessions of the server get, however their URLs spell it.
SET SESSION wait_timeout = :seconds, SESSION interactive_timeout = :seconds, SESSION net_read_timeout = :seconds,
    SESSION net_write_timeout = :seconds;
SELECT CONNECTION_ID(), (SELECT host FROM information_schema.processlist WHERE id = CONNECTION_ID()), @@session.wait_timeout, @@session.interactive_timeout, @@session.net_read_timeout,
    @@session.net_write_timeout, IF(@@lower_case_table_names = 0, DATABASE(), LOWER(DATABASE()))
