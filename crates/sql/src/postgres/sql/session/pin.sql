-- Proves that the request was served by the session that was opened: its id and its mark. Also the settings as they
-- are.
SELECT pg_backend_pid(), coalesce(current_setting('leasehold.session', true), ''),
    current_setting('tcp_user_timeout', true), current_setting('tcp_keepalives_idle', true),
    current_setting('tcp_keepalives_interval', true), current_setting('tcp_keepalives_count', true)
