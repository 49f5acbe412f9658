-- Finds the tables by the search_path of the session, which may be any; so everything here is qualified with its
-- schema.
-- In:     the schema of the URL, if it names one.
-- Out:    the schema that has leasehold_meta, if there is one; the schema in which it would be created; a setting of
--         our sessions; whether the schema of the URL does not exist.
SELECT
    (SELECT n.nspname::pg_catalog.text FROM pg_catalog.pg_class AS c, pg_catalog.pg_namespace AS n
     WHERE n.oid OPERATOR(pg_catalog.=) c.relnamespace
       AND c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(CASE WHEN $1 IS NULL THEN 'leasehold_meta'::pg_catalog.text
           ELSE pg_catalog.concat(pg_catalog.quote_ident($1), '.leasehold_meta'::pg_catalog.text) END)::pg_catalog.oid),
    CASE WHEN $1 IS NULL THEN pg_catalog.current_schema()::pg_catalog.text ELSE $1 END,
    pg_catalog.current_setting('lock_timeout'::pg_catalog.text),
    $1 IS NOT NULL AND NOT EXISTS (SELECT FROM pg_catalog.pg_namespace AS n
        WHERE n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) $1)
