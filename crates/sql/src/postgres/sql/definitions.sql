-- The definition of the tables in a schema.
-- In:     the schema; a role whose tables are trusted as well, if the URL names one.
-- Out:    per table: its name; whether it is a plain table; its owner; whether the owner is trusted, because it may
--         do anything in this schema or database anyway, or is our own role; the kind of code that would be executed
--         without being called (a trigger, a rule, row level security), if any; its columns with their types.
SELECT c.relname::text, c.relkind = 'r', o.rolname::text,
    o.rolsuper OR c.relowner IN (n.nspowner, d.datdba) OR pg_has_role(c.relowner, 'MEMBER') OR coalesce(o.rolname = $2, false),
    CASE
        WHEN EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal) THEN 'a trigger'
        WHEN EXISTS (SELECT FROM pg_rewrite AS r WHERE r.ev_class = c.oid AND c.relkind = 'r') THEN 'a rule'
        WHEN c.relrowsecurity THEN 'row level security'
    END,
    ARRAY(SELECT concat(a.attname, ' ', format_type(a.atttypid, NULL)) FROM pg_attribute AS a
          WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_roles AS o ON o.oid = c.relowner
JOIN pg_database AS d ON d.datname = current_database()
WHERE n.nspname = $1 AND c.relname IN ('leasehold_meta', 'leasehold_lock', 'leasehold_claim', 'leasehold_memo')
