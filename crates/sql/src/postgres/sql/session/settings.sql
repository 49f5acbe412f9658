-- Sets those of these settings that the server has, for this session. The search_path is one of them, so everything
-- here is qualified.
SELECT pg_catalog.set_config(wanted.name, wanted.value, false)
FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.text[]), pg_catalog.unnest($2::pg_catalog.text[]))
    AS wanted (name, value)
WHERE wanted.name OPERATOR(pg_catalog.~~) 'leasehold.%'
    OR EXISTS (SELECT FROM pg_catalog.pg_settings AS known WHERE known.name OPERATOR(pg_catalog.=) wanted.name)
