-- Who the session is: whether the server is a replica, the id of the session, the mark that another client may have
-- left in it, the mark of the connection options, whether the connection is TCP, how many locks fit, and the address of
-- the client as Rust writes it. The search_path of the session may be any, so everything here is qualified.
SELECT pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid(),
    coalesce(pg_catalog.current_setting('leasehold.session', true), ''),
    coalesce(pg_catalog.current_setting('leasehold.dialed', true), ''), pg_catalog.inet_server_addr() IS NOT NULL,
    pg_catalog.current_setting('max_locks_per_transaction')::pg_catalog.int8 OPERATOR(pg_catalog.*)
        (pg_catalog.current_setting('max_connections')::pg_catalog.int8 OPERATOR(pg_catalog.+)
            pg_catalog.current_setting('max_prepared_transactions')::pg_catalog.int8),
    CASE WHEN pg_catalog.family(client.address) OPERATOR(pg_catalog.=) 6
        THEN pg_catalog.concat('[', pg_catalog.host(client.address), ']:', pg_catalog.inet_client_port())
        WHEN pg_catalog.family(client.address) OPERATOR(pg_catalog.=) 4
        THEN pg_catalog.concat(pg_catalog.host(client.address), ':', pg_catalog.inet_client_port()) END
FROM (SELECT pg_catalog.inet_client_addr() AS address) AS client
