-- Who the session is: whether the server is a replica, the id of the session, the mark that another client may have
-- left in it, the mark of the connection options, the identity of the server, since when its locks exist, and for how
-- long they have existed, in microseconds; whether the connection is TCP; how many locks fit; the address of the client
-- as Rust writes it. After a crash of one backend the server loses all locks and goes on with the same start time; it
-- then resets all its statistics. A single reset by hand changes one of the two times only.
SELECT pg_is_in_recovery(), pg_backend_pid(), coalesce(current_setting('leasehold.session', true), ''),
    coalesce(current_setting('leasehold.dialed', true), ''),
    (SELECT system_identifier::text FROM pg_control_system()),
    (extract(epoch FROM begin.at) * 1000000)::int8,
    (extract(epoch FROM clock_timestamp() - begin.at) * 1000000)::int8,
    inet_server_addr() IS NOT NULL, current_setting('max_locks_per_transaction')::int8 *
    (current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8),
    CASE WHEN family(inet_client_addr()) = 6 THEN '[' || host(inet_client_addr()) || ']' ELSE host(inet_client_addr()) END
        || ':' || inet_client_port()
FROM (SELECT greatest(pg_postmaster_start_time(), least(
    (SELECT stats_reset FROM pg_stat_bgwriter), (SELECT stats_reset FROM pg_stat_archiver))) AS at) AS begin
