-- Sets up a connection. The other statements rely on these settings, whatever the defaults of the server or its proxy
-- are. The server must end an abandoned transaction: MariaDB has a timeout for such transactions; MySQL has only
-- the timeout for silent connections, which is shortened for the duration of each transaction.
SET NAMES utf8mb4;
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION time_zone = '+00:00', SESSION autocommit = 1,
    SESSION completion_type = NO_CHAIN, SESSION sql_select_limit = 18446744073709551615, SESSION sql_safe_updates = 0,
    SESSION sql_big_selects = 1, SESSION innodb_lock_wait_timeout = 2, SESSION lock_wait_timeout = 5, SESSION wait_timeout = 60
    /*M!100300 , SESSION idle_transaction_timeout = 5, SESSION max_statement_time = 5 */;
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE
