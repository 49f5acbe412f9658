-- Proves that the request was served by the session that was opened: its id and its mark.
SELECT pg_backend_pid(), coalesce(current_setting('leasehold.session', true), '')
