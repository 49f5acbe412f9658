-- How many connections are in use, and how many the user may have, for three limits: of the server, without the
-- reserved connections (https://www.postgresql.org/docs/current/runtime-config-connection.html); of the role; of the
-- database. A negative limit means no limit. Every user may see which sessions exist in which database, but not
-- what these sessions do.
SELECT s.of_server, current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
        - coalesce(nullif(current_setting('reserved_connections', true), ''), '0')::bigint,
    s.of_role, CASE WHEN r.rolsuper THEN -1 ELSE r.rolconnlimit END::bigint,
    s.of_database, CASE WHEN r.rolsuper THEN -1 ELSE d.datconnlimit END::bigint
FROM pg_roles AS r, pg_database AS d, LATERAL (
    SELECT count(*) AS of_server, count(*) FILTER (WHERE a.usesysid = r.oid) AS of_role,
        count(*) FILTER (WHERE a.datid = d.oid) AS of_database
    FROM pg_stat_activity AS a WHERE a.usesysid IS NOT NULL AND a.datid IS NOT NULL
) AS s
WHERE r.rolname = session_user AND d.datname = current_database()
