-- How a connection is set up. Whatever the server or its proxy is set to, this is what the other statements are written for.
-- A transaction that its client does not go on with is ended by the server: MariaDB has a limit for that, MySQL only the one for
-- connections that say nothing, which a transaction makes smaller for its time.
SET NAMES utf8mb4;
SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', SESSION time_zone = '+00:00', SESSION autocommit = 1,
    SESSION completion_type = NO_CHAIN, SESSION sql_select_limit = 18446744073709551615, SESSION sql_safe_updates = 0,
    SESSION sql_big_selects = 1, SESSION innodb_lock_wait_timeout = 2, SESSION lock_wait_timeout = 5, SESSION wait_timeout = 60
    /*M!100300 , SESSION idle_transaction_timeout = 5, SESSION max_statement_time = 5 */;
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE
